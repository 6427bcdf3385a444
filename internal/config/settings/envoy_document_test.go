package settings

import (
	"os"
	"strings"
	"testing"
)

func TestDocumentsHaveTheTableOfTheEnvironment(t *testing.T) {
	content, err := os.ReadFile("../../../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	code := func(text string) string {
		if text == "" {
			return ""
		}
		return "`" + text + "`"
	}
	table := []string{"| Variable | Its default | Here | |", "|---|---|---|---|"}
	for _, v := range envoyVariables() {
		var here []string
		for _, name := range v.settings {
			here = append(here, code(name))
		}
		if v.matters != nil {
			here = append(here, "a warning")
		}
		table = append(table, "| "+strings.Join([]string{code(v.name), code(v.byDefault), strings.Join(here, ", "), v.remark}, " | ")+" |")
	}
	if want := strings.Join(table, "\n") + "\n"; !strings.Contains(string(content), want) {
		t.Errorf("docs/environment.md lacks this table:\n%s", want)
	}
}
