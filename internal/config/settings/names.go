package settings

import (
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

// fromKubernetes reports whether Kubernetes may have set a variable for a Service named
// ratelimitd, or one whose name starts that way. No setting is named like one.
func fromKubernetes(name string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || slices.Contains(strings.Split(name, "_"), "PORT")
}

// didYouMean says which of the candidates an unknown name was most likely meant to be.
func didYouMean(name string, candidates []string) string {
	if nearest := yamlfile.Nearest(name, candidates); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return ""
}

// shownName prepares an unknown name for a message. It cuts it at the first character
// that occurs in no name: `{password:s3cret}` in YAML is a key, and its second half is a
// secret.
func shownName(name string) string {
	const maxShown = 60
	end := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune(nameRunes, r) })
	if end < 0 && len(name) <= maxShown {
		return name
	}
	return name[:min(uint(end), uint(len(name)), maxShown)] + "..."
}

const nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
