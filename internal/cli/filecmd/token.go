package filecmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// newToken is the command line of token.
type newToken struct {
	name         string
	role         access.Role // access.NoRole if it is not given
	file, config string
	add, replace bool
	json         bool
}

// TokenCommand makes tokens for the admin API.
func TokenCommand() *cobra.Command {
	var t newToken
	role := ""
	cmd := &cobra.Command{
		Use:   "token NAME --role ROLE",
		Short: "Make a token for the admin API",
		Long: `Makes a token for a caller of the admin API, prints it once, and writes its
SHA-256 with the name and the role into the tokens file. Everything else in the
file stays as it is. A missing file is created, readable only by its owner.

NAME is shown by the audit as the maker of changes. The tokens file is that of
--tokens-file, or else admin.tokens_file of the daemon's settings. A daemon that
uses it reads it again by itself.

A name that already has a token is refused, unless it is to have another one:
with --add both are valid, until you remove the older entry from the file; with
--replace the older one ends at once. Neither needs --role.

Only the token is on standard output, everything else on standard error.`,
		Example: `  ratelimitd token billing --role operator --tokens-file tokens.yaml
  RATELIMITD_TOKEN=$(ratelimitd token me --role support)
  ratelimitd token billing --add > new.token`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("found %s; allowed: one name, of who gets the token. Usage: %s", yamlfile.Plural(int64(len(args)), "argument"), cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.StringVar(&role, "role", "", "what the token is for: "+yamlfile.Commas(access.RoleNames()))
	fs.StringVar(&t.file, "tokens-file", "", "tokens file to write into (default: admin.tokens_file of the settings)")
	fs.StringVar(&t.config, "config", os.Getenv("RATELIMITD_CONFIG"), "YAML file of settings, which name the tokens file")
	fs.BoolVar(&t.add, "add", false, "add a token to those that the name has")
	fs.BoolVar(&t.replace, "replace", false, "replace the token that the name has")
	cmdline.BindJSON(fs, &t.json, "the token, its name, role and file")
	cmd.MarkFlagsMutuallyExclusive("add", "replace")
	cmdline.Complete(cmd, "role", func(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return cmdline.StartingWith(access.RoleNames(), toComplete), cobra.ShellCompDirectiveNoFileComp
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t.name = args[0]
		if err := t.readRole(cmd, role); err != nil {
			return err
		}
		if err := t.findFile(); err != nil {
			return err
		}
		return t.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// readRole reads the role, without which a new name has none.
func (t *newToken) readRole(cmd *cobra.Command, role string) error {
	allowed := yamlfile.Commas(access.RoleNames())
	if !cmd.Flags().Changed("role") {
		if t.add || t.replace {
			return nil
		}
		return fmt.Errorf("found no --role; allowed: %s. Usage: %s", allowed, cmd.UseLine())
	}
	known := false
	if t.role, known = access.ParseRole(role); known {
		return nil
	}
	advice := ""
	if near := yamlfile.Nearest(role, access.RoleNames()); near != "" {
		advice = " (" + near + "?)"
	}
	return fmt.Errorf("flag --role: found %q%s; allowed: %s", role, advice, allowed)
}

// findFile uses the file of the settings if none is given.
func (t *newToken) findFile() error {
	if t.file != "" {
		return nil
	}
	file, err := settings.TokensFile(os.Environ(), t.config)
	if err != nil {
		return fmt.Errorf("the daemon's settings, which --tokens-file makes needless:\n%w", err)
	}
	if t.file = file; t.file == "" {
		return errors.New("found no tokens file; allowed: --tokens-file FILE, or admin.tokens_file in the settings (RATELIMITD_ADMIN_TOKENS_FILE, or --config)")
	}
	return nil
}

func (t *newToken) run(out, notes io.Writer) error {
	token, digest := access.NewToken()
	made, others := false, 0
	err := access.Rewrite(t.file, func(text []byte) ([]byte, error) {
		made = text == nil
		before, err := access.ReadTokensText(t.file, text)
		if err != nil {
			return nil, fmt.Errorf("the tokens file has errors, and stays as it is:\n%w", err)
		}
		others = before.Tokens(t.name)
		if role, known := before.Role(t.name); known && t.role == access.NoRole {
			t.role = role
		}
		return t.change(before, digest)
	})
	switch {
	case errors.Is(err, access.ErrNameTaken):
		return fmt.Errorf("%w; allowed: another name, --add for one more, or --replace", err)
	case err != nil:
		return fmt.Errorf("the tokens file: %w", err)
	}
	if t.json {
		err = cmdline.WriteValue(out, struct {
			Name  string `json:"name"`
			Role  string `json:"role"`
			Token string `json:"token"`
			File  string `json:"file"`
		}{Name: t.name, Role: t.role.String(), Token: token, File: t.file})
	} else {
		_, err = fmt.Fprintln(out, token)
	}
	if err != nil {
		return fmt.Errorf("the token is in %s and could not be printed, so it is lost: %w. Make another with --replace", t.file, err)
	}
	_, err = io.WriteString(notes, t.nextSteps(made, others))
	return err
}

// change returns the text with the token in it.
func (t *newToken) change(before *access.TokensText, d access.Digest) ([]byte, error) {
	switch {
	case t.replace:
		return before.Replace(t.name, t.role, d)
	case t.add:
		return before.AddBeside(t.name, t.role, d)
	}
	return before.Add(t.name, t.role, d)
}

// nextSteps says what was done, and what to do next. others is how many tokens the name had.
func (t *newToken) nextSteps(made bool, others int) string {
	name, file := spelling.Visible(t.name), spelling.Visible(t.file)
	var s strings.Builder
	switch {
	case t.replace:
		fmt.Fprintf(&s, "%s has another token of %s, %s: the former one ends when the daemon reads the file, by itself or on SIGHUP.\n", file, name, t.role)
	case made:
		fmt.Fprintf(&s, "%s is new and has %s, %s. A daemon reads it with --admin-tokens-file %s.\n", file, name, t.role, file)
	default:
		fmt.Fprintf(&s, "%s has %s, %s. A daemon that has the file reads it again by itself, or on SIGHUP.\n", file, name, t.role)
	}
	if t.add && others > 0 {
		fmt.Fprintf(&s, "The former one of %s is valid too: once it is unused, remove its entry from the file.\n", name)
	}
	s.WriteString("The token is shown this once: keep it.\n")
	return s.String()
}
