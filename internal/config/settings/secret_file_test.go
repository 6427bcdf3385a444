package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestPasswordIsThatOfTheFileNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	r := Redis{Password: NewSecret("fixed")}
	if got, err := r.CurrentPassword(); got != "fixed" || err != nil {
		t.Errorf("without a file: got %q, %v", got, err)
	}
	r = Redis{PasswordFile: path}
	for _, c := range []struct{ content, want, wrong string }{
		{"one\n", "one", ""},
		{"two", "two", ""},
		{"three\r\n", "three", ""},
		{" with spaces \n", " with spaces ", ""},
		{"two\nlines\n\n", "two\nlines\n", ""},
		{"", "", "read the password file: " + path + " is empty"},
		{"\n", "", "read the password file: " + path + " is empty"},
	} {
		t.Run(fmt.Sprintf("%.20q", c.content), func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := r.CurrentPassword()
			if got != c.want || (err == nil) != (c.wrong == "") || err != nil && err.Error() != c.wrong {
				t.Errorf("%.20q: got %q, %v; want %q %s", c.content, got, err, c.want, c.wrong)
			}
		})
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want := "read the password file: open " + path + ": no such file or directory"
	if _, err := readPassword(path); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
