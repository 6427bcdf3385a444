package yamlfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

var (
	top  = &yamlfile.Level{Is: "a shop", Fields: []yamlfile.Field{{Name: "name"}, {Name: "open"}, {Name: "shelves"}}}
	item = &yamlfile.Level{Is: "a shelf", Fields: []yamlfile.Field{{Name: "label"}, {Name: "height"}}}
)

// shop reads a shop, and returns it as "name open label=height,label=height".
func shop(w *yamlfile.Reader, text string) string {
	doc, err := w.ParseYAML([]byte(text))
	if err != nil {
		w.Errs = append(w.Errs, *err)
		return ""
	}
	o, ok := w.Object(yamlfile.Root(doc), top)
	if !ok {
		return ""
	}
	var said, shelves []string
	if v, ok := o.Field("name"); ok {
		name, _ := w.Name(v, "a name", 10)
		said = append(said, name)
	}
	if v, ok := o.Field("open"); ok {
		open, _ := w.Boolean(v)
		said = append(said, fmt.Sprint(open))
	}
	if v, ok := o.Field("shelves"); ok {
		list, _ := w.List(v, "shelves")
		for v := range list.All() {
			if s, ok := w.Object(v, item); ok {
				shelves = append(shelves, shelf(w, s))
			}
		}
	}
	return strings.Join(append(said, strings.Join(shelves, ",")), " ")
}

func shelf(w *yamlfile.Reader, o *yamlfile.Object) string {
	var label string
	if v, ok := o.Field("label"); ok {
		label, _ = w.Text(v, "a label")
	} else {
		w.Bad(o.Value, "no label", "label: TEXT")
	}
	var height int64
	if v, ok := o.Field("height"); ok {
		height, _ = w.Integer(v, yamlfile.Range{Min: 1, Max: 300})
	}
	return fmt.Sprintf("%s=%d", label, height)
}

func TestReaderReadsValues(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"plain", "name: a\nopen: yes\nshelves: [{label: x, height: 5}, {label: 7}]", "a true x=5,7=0"},
		{"numbers in other notations", "shelves: [{label: x, height: 0x10}, {label: 0x10, height: 0o17}]", "x=16,0x10=15"},
		{"an alias", "name: &n a\nshelves: [{label: *n}]", "a a=0"},
		{"a merge goes after the own fields", "shelves: [&s {label: x, height: 5}, {<<: *s, label: y}]", "x=5,y=5"},
		{"the first of several merges counts", "shelves: [&s {label: x}, &r {label: y, height: 5}, {<<: [*s, *r]}]", "x=0,y=5,x=5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := yamlfile.NewReader("f", len(c.text), top, item)
			if got := shop(w, c.text); got != c.want || len(w.Errs) > 0 {
				t.Errorf("%q, want %q; errors:\n%v", got, c.want, w.Errs)
			}
		})
	}
}

func TestReaderSaysWhereAMistakeIs(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no mapping", "[a]", "f:1:1: found a list; allowed: a shop, with name, open, shelves"},
		{"an unknown key", "nome: a", `f:1:1: found an unknown key "nome" in a shop (name?); allowed: name, open, shelves`},
		{"a key of another level", "name: a\nheight: 5", "f:2:1: found height in a shop, but it belongs in a shelf; allowed: name, open, shelves"},
		{"a key without a blank", "name:a: b", `f:1:1: found an unknown key "name:a" in a shop (name: a?); allowed: name, open, shelves`},
		{"a key twice", "name: a\nname: b", "f:2:1: name: found a second name, the first is on line 1; allowed: one"},
		{"a list as a key", "[a]: b", "f:1:1: found a list as a key; allowed: name, open, shelves"},
		{"a long name", "name: abcdefghijk", `f:1:7: name: found 11 bytes, "abcdefghijk"; allowed: a name of 1 to 10 bytes without control characters`},
		{"an empty name", "name: ''", "f:1:7: name: found an empty text; allowed: a name of 1 to 10 bytes without control characters"},
		{"no boolean", "open: 5", "f:1:7: open: found the number 5; allowed: true or false"},
		{"no list", "shelves: {a: b}", "f:1:10: shelves: found a mapping; allowed: a list of shelves"},
		{"an item", "shelves: [{label: a}, b]", `f:1:23: shelves[1]: found the text "b"; allowed: a shelf, with label, height`},
		{"a missing field", "shelves: [{height: 5}]", "f:1:11: shelves[0]: found no label; allowed: label: TEXT"},
		{"a field of an item", "shelves:\n- label: a\n- label: b\n  height: 301", "f:4:11: shelves[1].height: found the number 301; allowed: a whole number from 1 to 300"},
		{"a text with a list", "shelves: [{label: [a]}]", "f:1:19: shelves[0].label: found a list; allowed: a label"},
		{"a mistake behind aliases once", "shelves: [&s {label: a, height: x}, *s, {<<: *s}]", `f:1:33: shelves[0].height: found the text "x"; allowed: a whole number from 1 to 300`},
		{"a merge of a text", "shelves: [{<<: a, label: b}]", `f:1:16: shelves[0].<<: found the text "a"; allowed: an alias of a mapping, or a list of them`},
		{"a merge of a list with a text", "shelves: [{<<: [a], label: b}]", `f:1:17: shelves[0].<<: found the text "a"; allowed: an alias of a mapping, or a list of them`},
		{"an alias inside its own anchor", "name: &n [*n]", "1:11: found *n inside its own anchor; allowed: an alias after what it names"},
		{"a second document", "name: a\n--- b", "2:1: found a second document; allowed: one document in a file"},
		{"no YAML", "name: @a", "1:7: found no YAML: found character that cannot start any token; allowed: quotes around a text that begins with @, % or `"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := yamlfile.NewReader("f", len(c.text), top, item)
			shop(w, c.text)
			for i := range w.Errs {
				w.Errs[i].File = "f"
			}
			want := c.want
			if !strings.HasPrefix(want, "f:") {
				want = "f:" + want
			}
			if got := w.Errs.Error(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestTextThatIsNoUTF8IsRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"UTF-16", "\xff\xfea\x00", "1:1: found UTF-16; allowed: UTF-8"},
		{"a byte", "a\nä\xff", "2:2: found the byte 0xff, which is not UTF-8; allowed: UTF-8"},
		{"a control character", "a\x00", `1:2: found the character U+0000; allowed: text; other characters stand as \x or \u escapes in double quotes`},
		{"a byte order mark is left out", "\ufeffa", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			data, err := yamlfile.NewReader("f", 0).Utf8([]byte(c.text))
			if err != nil {
				err.File = "f"
				got = strings.TrimPrefix(err.Error(), "f:")
			} else if string(data) != "a" {
				t.Errorf("the text is %q", data)
			}
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestNearestIsTheNameThatWasMeant(t *testing.T) {
	names := []string{"unit", "requests", "period"}
	for word, want := range map[string]string{
		"unti": "unit", "request": "requests", "perriod": "period", "zebra": "", "": "", strings.Repeat("x", 100): "",
	} {
		t.Run(word, func(t *testing.T) {
			if got := yamlfile.Nearest(word, names); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
