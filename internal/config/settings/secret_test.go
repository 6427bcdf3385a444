package settings

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// A secret is set in each way that there is, and looked for in all that can be
// printed.
func TestSecretsNeverShow(t *testing.T) {
	const secret = "hunter2"
	fromFile := settingsIn(t, "redis: {password: "+secret+"}")
	for name, load := range map[string]func() (Settings, []string, error){
		"file": func() (Settings, []string, error) { return Load(nil, nil, fromFile) },
		"variable": func() (Settings, []string, error) {
			return Load(nil, []string{"RATELIMITD_REDIS_PASSWORD=" + secret}, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := load()
			if err != nil || s.Redis.Password.Reveal() != secret {
				t.Fatalf("%s: the password is not there: %v", name, err)
			}
			hidden := struct{ settings Settings }{s} // where fmt can't call methods
			var out strings.Builder
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				for _, v := range []any{s, &s, s.Redis, s.Redis.Password, &s.Redis.Password, hidden, &hidden, []Secret{s.Redis.Password}} {
					fmt.Fprintf(&out, verb+"\n", v)
				}
			}
			asJSON, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			asYAML, err := yaml.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(asJSON)
			out.Write(asYAML)
			for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
				slog.New(h).Info("start", "settings", s, "redis", s.Redis, "password", s.Redis.Password, "hidden", hidden)
			}
			if got := out.String(); strings.Contains(got, secret) || strings.Contains(got, fmt.Sprintf("%x", secret)) || !strings.Contains(got, redacted) {
				t.Errorf("%s: the secret shows, or not even its stars:\n%s", name, got)
			}
		})
	}

	// Mistakes around a password: messages may say where, never what.
	for _, content := range []string{
		"redis: {password: [hunter2]}",
		"redis: {password: {hunter2: 1}}",
		"redis: {password: *hunter2}",
		"redis:\n  password: *hunter2\n",
		"redis: {password:hunter2}",
		"redis: {password=hunter2: }",
		"redis: password:hunter2",
		"redis: password=hunter2",
		"redis: [hunter2]",
		"redis: hunter2",
		"redis:\n  password: a\n  password: hunter2",
		"redis:\n  pasword: hunter2",
		"redis:\n  password hunter2",
		"redis:\n  username: x\n  password hunter2\n",
		"redis:\n  password: \"hunter2\n",
		"redis:\n  password: 'hunter2' hunter2\n",
		"redis:\n  password: @hunter2\n",
		"redis:\n  password: %hunter2\n",
		"redis:\n\tpassword: hunter2\n",
		"redis: {addresses: ['redis://u:hunter2@host:6379']}",
		"redis: {addresses: 'hunter2@host:6379'}",
		"redis:\n  password: \"hunter2\\d\"\n",
		"redis:\n  password: hunter2: x\n",
		"redis:\n   password: hunter2\n  mode: x\n",
		"redis:\n  password: {hunter2\n",
		"password: hunter2",
		"store: 'redis://:hunter2@host'",
		"--- {}\n--- hunter2",
		"hunter2",
	} {
		// The name of a test is in the path of its files.
		t.Run(strings.ReplaceAll(content, secret, "SECRET"), func(t *testing.T) {
			_, warnings, err := Load(nil, nil, settingsIn(t, content))
			if err == nil {
				t.Errorf("%q loads", content)
			} else if strings.Contains(err.Error()+strings.Join(warnings, ""), secret) {
				t.Errorf("%q shows the secret: %v %q", content, err, warnings)
			}
		})
	}
	_, warnings, err := Load(nil, []string{"RATELIMITD_REDIS_PASWORD=" + secret, "RATELIMITD_REDIS_MODE=u:hunter2@x"}, "")
	if text := fmt.Sprint(warnings, err); strings.Contains(text, secret) || len(warnings) != 1 || err == nil {
		t.Errorf("variables: %s", text)
	}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	BindFlags(fs)
	if err := fs.Parse([]string{"--redis-password=" + secret}); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("the flag that does not exist: %v", err)
	}
}
