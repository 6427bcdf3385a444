package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ratelimitd/ratelimitd/deploy"
	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// files are what the demo's daemon reads and writes.
type files struct {
	dir string
	// isTemporary is set if the folder goes with the demo.
	isTemporary bool
	// limits is the file or folder of limits. token holds the token of an operator, and
	// tokens its digest.
	limits, token, tokens, assignments string
}

// makeFiles makes the folder with what is not there yet.
func (d *demo) makeFiles() (f files, err error) {
	f = files{dir: d.dir, isTemporary: d.dir == "", limits: d.limits}
	if f.isTemporary {
		f.dir, err = os.MkdirTemp("", "ratelimitd-demo-")
	} else {
		// The token is only for the user who runs the demo.
		if err = os.MkdirAll(filepath.Dir(f.dir), 0o755); err == nil {
			err = os.MkdirAll(f.dir, 0o700)
		}
	}
	if err != nil {
		return f, fmt.Errorf("a folder for the demo's files, which --dir may name: %w", err)
	}
	f.token, f.tokens = filepath.Join(f.dir, "token"), filepath.Join(f.dir, "tokens.yaml")
	f.assignments = filepath.Join(f.dir, "assignments.db")
	if f.limits == "" {
		f.limits = filepath.Join(f.dir, "limits")
		if _, missing := os.Stat(f.limits); missing != nil { // those that are there may be edited
			err = os.CopyFS(f.dir, deploy.Limits)
		}
	}
	if err = errors.Join(err, f.makeToken()); err != nil {
		return f, errors.Join(fmt.Errorf("the demo's files: %w", err), f.remove())
	}
	return f, nil
}

// remove removes a temporary folder.
func (f files) remove() error {
	if !f.isTemporary {
		return nil
	}
	return os.RemoveAll(f.dir)
}

// makeToken makes a token that may do everything, so that plans can be tried. One of an
// earlier demo stays: shells may have it.
func (f files) makeToken() error {
	_, noToken := os.Stat(f.token)
	_, noTokens := os.Stat(f.tokens)
	if noToken == nil && noTokens == nil {
		return nil
	}
	token, digest := access.NewToken()
	none, err := access.ReadTokensText(f.tokens, nil)
	if err != nil {
		return err
	}
	text, err := none.Add("demo", access.Operator, digest)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(f.tokens, text, 0o600),
		os.WriteFile(f.token, []byte(token+"\n"), 0o600),
	)
}

// ruleOf returns the rule of a subject, which has one entry. It is an error if the limits
// have none, since the demo asks for it.
func (f files) ruleOf(domain, subject string) (*rules.Rule, error) {
	set, err := limitsfile.Load(f.limits)
	if err != nil {
		return nil, err
	}
	key, value, _ := strings.Cut(subject, "=")
	if d := set.Domain(domain); d != nil {
		if r := d.Match([]bucket.Entry{{Key: key, Value: value}}); r != nil && len(r.Limits) > 0 {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%s: found no limit for %s of the domain %s; allowed: limits with one, since the demo's caller asks for it", f.limits, subject, domain)
}
