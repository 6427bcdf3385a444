package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// variablePrefix starts every environment variable of ours.
const variablePrefix = "RATELIMITD_"

// variable returns the name of the setting's environment variable.
func (d *setting) variable() string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(d.name, ".", "_"))
}

// kubernetesVariable matches the variables that Kubernetes sets for a service named
// ratelimitd. It also matches those for a service whose name starts that way, such as
// ratelimitd-headless, if they cannot be settings.
var kubernetesVariable = regexp.MustCompile(
	`^RATELIMITD_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_.*)?)$` +
		`|^RATELIMITD_[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func fromKubernetes(name, value string) bool {
	if kubernetesVariable.MatchString(name) {
		return true
	}
	// RATELIMITD_GRPC_PORT may be a mistyped setting, but not with the value
	// tcp://10.1.2.3:8081.
	return strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// NearestName returns the candidate that name was most likely meant to be, or "" if none
// is near. Case, - and _ are ignored.
func NearestName(name string, candidates []string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
	}
	plains := make([]string, len(candidates))
	for i, candidate := range candidates {
		plains[i] = plain(candidate)
	}
	if i := slices.Index(plains, yamlfile.Nearest(plain(name), plains)); i >= 0 {
		return candidates[i]
	}
	return ""
}

// unknownName prepares an unknown name for a message. It cuts it at the first character
// that occurs in no name: `{password:s3cret}` in YAML is a key, and its second half is a
// secret.
func unknownName(name string) string {
	end := strings.IndexFunc(name, func(r rune) bool {
		return !(r == '.' || r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	})
	if end < 0 {
		end = len(name)
	}
	const maxShown = 60
	if end > maxShown {
		end = maxShown
	}
	if end < len(name) {
		return name[:end] + "..."
	}
	return name
}
