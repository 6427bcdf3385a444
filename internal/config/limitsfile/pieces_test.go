package limitsfile_test

import (
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/racetest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// told is all that a load says: its errors, or its table, its warnings and the
// lines of its rules.
func told(t testing.TB, r *rules.Set, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	var s strings.Builder
	s.WriteString(r.Fingerprint() + "\n" + table(t, r))
	for _, w := range r.Warnings() {
		s.WriteString(w.String() + "\n")
	}
	for _, d := range r.Domains() {
		for _, rule := range d.Rules() {
			s.WriteString(rule.Path() + " " + rule.File + " " + strings.Repeat("i", rule.Line) + "\n")
		}
	}
	return s.String()
}

// sameInPieces holds what a load says of a text read in small pieces to what
// it says of it as a whole, and reports whether there were pieces.
func sameInPieces(t testing.TB, path, text string) bool {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cut := false
	for _, o := range []limitsfile.Options{{}, {Lenient: true}} {
		whole, files, err := o.LoadInPieces(math.MaxInt/2, path)
		if files != 0 {
			t.Fatal("pieces of a file that fits in one")
		}
		want := told(t, whole, err)
		for _, size := range []int{1, 40, 200} {
			pieces, files, err := o.LoadInPieces(size, path)
			if got := told(t, pieces, err); got != want {
				t.Errorf("in pieces of %d bytes, %+v:\n%s\nas a whole:\n%s\nof\n%s", size, o, got, want, text)
			}
			cut = cut || files > 0
		}
	}
	return cut
}

const pieceText = `# Limits.
domain: d
hash_tag: a

descriptors:
# The first.
- key: a
  value: "x
 - key: y"
  descriptors: # more
    - key: b
      rate_limit: {unit: day,
       requests_per_unit: 5}

    - key: b
      value: z*
      metadata:
        text: |
          descriptors
          - key: no
      rate_limit:
        unit: day
        replaces:
        - name: q
    - descriptors:
      - {key: c, rate_limit: {unit: hour}}
      - key: e
        rate_limit: {unit: hour}
      key: c
  rate_limit:
    unit: minute
-
  key: a
  value: plain
    - text
  rate_limit: {unlimited: true}
- {key: w,
 descriptors: [
 {key: x, rate_limit: {unit: day}}]}
algorithm: gcra
`

const flowText = `{
  "domain": "d",
  "descriptors": [
    {
      "key": "a",
      "value": "x, y",
      "rate_limit": {
        "unit": "day"
      },
      "descriptors": [
        {"key": "b", "rate_limit": {"unit": "hour"}},
        {"key": "c",
         "rate_limit": {"unit": "hour"}
        },

        {
          "key": "e"
        }
      ]
    },
    {
      "key": "f",
      "value": "z*",
      "metadata": {"descriptors": [
        {"a": 1},
        {"b": 2}
      ]},
      "rate_limit": {"unit": "minute", "foo": 1}
    },
    {
      "key": "g"
    }
  ]
}
`

func TestPiecesReadTheSameAsTheWhole(t *testing.T) {
	t.Parallel()
	path := filetest.Write(t, t.TempDir(), "limits.yaml", "")
	if !sameInPieces(t, path, pieceText) {
		t.Error("not read in pieces")
	}
	if !sameInPieces(t, path, limitstest.Example) {
		t.Error("the example is not read in pieces")
	}
	if good := strings.Replace(flowText, `, "foo": 1`, "", 1); !sameInPieces(t, path, good) {
		t.Error("no pieces in flow style")
	}
	for _, torn := range []string{
		"{\"domain\": \"d\", \"descriptors\": [\n {\"key\": \"a\"},\n {\"key\": \"ä\", \"descriptors\": [], \"rate_limit\": {\"descriptors\": [\n {\"key\": \"b\"},\n {\"key\": \"c\"}\n ]}}\n]}\n",
		"{\"domain\": \"d\", \"descriptors\": [\n {\"key\": \"a\"},\n {\"key\": \"ä\", \"descriptors\": [\n {\"key\": \"b\"},\n {\"key\": \"c\"}\n ]}\n]}\n",
		"domain: d\ndescriptors:\n- key: a\n  value: \"x\n- key: y\"\n- key: b\n- key: c\n",
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day,\nrequests_per_unit: 5}\n- key: b\n",
		"domain: d\ndescriptors:\n- {key: a,\ndescriptors: [\n{key: b}]}\n- key: b\n- key: c\n- key: e\n",
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day}\n  metadata:\n    a: |\n      descriptors:\n      - key: no\n- key: b\n",
		"domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day}\n  metadata:\n    descriptors:\n    - key: no\n- key: b\n",
		"domain: d\ndescriptors: [\n descriptors:\n  - key: b\n ]\n",
		"domain: d\ndescriptors: [\n {key: a,\n descriptors:\n  - key: b\n }]\n",
		"domain: d\ndescriptors:\n  - key: b\n  - key: c\n foo: bar\n",
		"domain: d\ndescriptors:\n- key: a\n- key: b\ndescriptors:\n- key: c\n- key: [\n",
		"domain: d\ndescriptors:\n- key: a\n- &a {key: b}\n- key: c\n  rate_limit: *a\n",
	} {
		t.Run(torn, func(t *testing.T) {
			sameInPieces(t, path, torn)
		})
	}
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			sameInPieces(t, path, c.text)
			sameInPieces(t, path, strings.ReplaceAll(c.text, "\n", "\r\n"))
		})
	}
	if t.Failed() {
		return
	}
	// The same with lines taken out, doubled, moved to the left and right.
	r := rand.New(rand.NewPCG(1, 9))
	cut, good := 0, 0
	rounds := racetest.Fewer(500)
	for range rounds {
		lines := strings.SplitAfter([]string{pieceText, limitstest.Example, limitstest.ManyRules(6), flowText, strings.Replace(flowText, `, "foo": 1`, "", 1)}[r.IntN(5)], "\n")
		for range 1 + r.IntN(3) {
			i := r.IntN(len(lines))
			switch r.IntN(6) {
			case 0:
				lines[i] = ""
			case 1:
				lines[i] += lines[i]
			case 2:
				lines[i] = " " + lines[i]
			case 3:
				lines[i] = strings.TrimPrefix(lines[i], " ")
			case 4:
				lines[i] = lines[r.IntN(len(lines))]
			case 5:
				lines[i] = []string{"- \"", "'\n", "[\n", "}\n", "---\n", "...\n", "%YAML 1.1\n", "# -\n", "descriptors:\n", "  descriptors:\n", "- key: k\n", "  - key: k\n", "-\n", "- - a\n", "? a\n", ": b\n", "x: |\n", "  - &a b\n", "\t- a\n", "key: >-\n", "{\n", "},\n", "]\n", "{\"key\": \"x\"},\n", "    {\"key\": \"x\"}\n", "    {\"key\": \"y\"},\n", ",\n", "\"descriptors\": [\n", "    ], [\n", "# ,\n"}[r.IntN(30)] + lines[i]
			}
		}
		text := strings.Join(lines, "")
		if sameInPieces(t, path, text) {
			cut++
		}
		if _, err := limitsfile.Load(path); err == nil {
			good++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d texts in pieces, %d without errors", cut, good)
	if cut < rounds/9 || good < rounds/25 {
		t.Errorf("only %d texts were read in pieces, %d without errors", cut, good)
	}
}

// FuzzPieces holds pieces to the whole on any text.
func FuzzPieces(f *testing.F) {
	f.Add(pieceText)
	f.Add(limitstest.Example)
	f.Add(flowText)
	f.Add(limitstest.ManyRules(4))
	path := filetest.Write(f, f.TempDir(), "limits.yaml", "")
	f.Fuzz(func(t *testing.T, text string) { sameInPieces(t, path, text) })
}
