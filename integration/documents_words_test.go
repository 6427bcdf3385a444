package integration

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// What a reader should find short.
const (
	maxDocumentWords = 24_000 // of all pages that are no tables to look things up in
	maxPageWords     = 1_500
	maxReadmeLines   = 120
	maxParagraph     = 500 // in characters that are shown
	maxCell          = 200
)

// references are the pages that are tables to look things up in.
var references = []string{"configuration.md", "environment.md", "metrics.md"}

// longPages may have more words than others.
var longPages = map[string]int{"limits.md": 2_100}

// documents returns the names of the pages in docs/.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for i := range pages {
		pages[i] = filepath.Base(pages[i])
	}
	return pages
}

// passage is a part of a page that is read in one go.
type passage struct {
	kind string // heading, paragraph, item or cell
	line int    // where it begins
	text string // as it is shown, except that *a term* keeps its stars
}

// passages returns those of a page, without code.
func passages(page string) []passage {
	var all []passage
	open, fenced := false, false // whether the next line may go on with the last passage
	item := regexp.MustCompile(`^ *(?:[-*]|\d+\.) +`)
	for i, line := range strings.Split(page, "\n") {
		add := func(kind, text string) { all = append(all, passage{kind, i + 1, shownText(text)}) }
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced, open = !fenced, false
		case fenced:
		case trimmed == "" || strings.HasPrefix(trimmed, "<"):
			open = false
		case strings.HasPrefix(line, "#"):
			add("heading", strings.TrimLeft(line, "# "))
			open = false
		case strings.HasPrefix(trimmed, "|"):
			for _, cell := range strings.Split(strings.ReplaceAll(strings.Trim(trimmed, "|"), `\|`, "/"), "|") {
				add("cell", strings.TrimSpace(cell))
			}
			open = false
		case item.MatchString(line):
			add("item", item.ReplaceAllString(line, ""))
			open = true
		case open:
			all[len(all)-1].text += " " + shownText(trimmed)
		default:
			add("paragraph", trimmed)
			open = true
		}
	}
	return all
}

// shownText is Markdown without the targets of its links and without the marks of code.
func shownText(markdown string) string {
	text := regexp.MustCompile("`[^`]*`").ReplaceAllStringFunc(markdown, func(code string) string {
		return strings.ReplaceAll(code, "*", "x") // no term begins or ends there
	})
	text = regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(text, "]")
	return strings.NewReplacer("[", "", "]", "", "`", "", "**", "").Replace(text)
}

// words returns how many words a page has. The bars and dashes of tables and lists are none.
func words(page string) (n int) {
	for _, field := range strings.Fields(page) {
		if strings.ContainsFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

func TestDocumentsHaveFewWords(t *testing.T) {
	t.Parallel()
	total := 0
	for _, page := range documents(t) {
		if slices.Contains(references, page) {
			continue
		}
		found := words(readPage(t, "docs/"+page))
		total += found
		allowed := maxPageWords
		if n, ok := longPages[page]; ok {
			allowed = n
		}
		if found > allowed {
			t.Errorf("docs/%s: %d words, at most %d are allowed", page, found, allowed)
		}
	}
	if total > maxDocumentWords {
		t.Errorf("docs: %d words beside %v, at most %d are allowed", total, references, maxDocumentWords)
	}
	if n := strings.Count(readPage(t, "README.md"), "\n"); n > maxReadmeLines {
		t.Errorf("README.md: %d lines, at most %d are allowed", n, maxReadmeLines)
	}
}

// No paragraph and no cell of a table is too long to be read in one go, and each page says
// first what it is for.
func TestDocumentsHaveShortPassages(t *testing.T) {
	t.Parallel()
	pages := []string{"README.md"}
	for _, page := range documents(t) {
		pages = append(pages, "docs/"+page)
	}
	for _, page := range pages {
		all := passages(readPage(t, page))
		if len(all) < 2 || all[0].kind != "heading" || all[1].kind != "paragraph" {
			t.Errorf("%s does not begin with a heading and a paragraph about what it is for", page)
		}
		for _, p := range all {
			allowed := maxParagraph
			switch {
			case p.kind == "cell":
				allowed = maxCell
			case page == "README.md":
				continue // it has few lines
			}
			if n := utf8.RuneCountInString(p.text); n > allowed {
				t.Errorf("%s:%d: a %s of %d characters, at most %d are allowed: %.60s...", page, p.line, p.kind, n, allowed, p.text)
			}
		}
	}
}

// Terms, which are in italics where they are introduced, are in the glossary, and what is
// there is used elsewhere.
func TestTermsAreInTheGlossary(t *testing.T) {
	t.Parallel()
	var terms []string
	for _, m := range regexp.MustCompile(`(?m)^\*\*(.+?)\*\*: `).FindAllStringSubmatch(readPage(t, "docs/glossary.md"), -1) {
		terms = append(terms, m[1])
	}
	if len(terms) == 0 || !slices.IsSorted(terms) || len(slices.Compact(slices.Clone(terms))) != len(terms) {
		t.Errorf("the terms of docs/glossary.md are not sorted, or not unique: %q", terms)
	}
	var elsewhere strings.Builder
	italic := regexp.MustCompile(`(?:^|[^*\w])\*([^*\s][^*]*)\*(?:[^*\w]|$)`)
	for _, page := range documents(t) {
		if page == "glossary.md" {
			continue
		}
		for _, p := range passages(readPage(t, "docs/"+page)) {
			elsewhere.WriteString(strings.ToLower(p.text) + "\n")
			for _, m := range italic.FindAllStringSubmatch(p.text, -1) {
				if term := strings.ToLower(m[1]); !slices.Contains(terms, term) && !slices.Contains(terms, strings.TrimSuffix(term, "s")) {
					t.Errorf("docs/%s:%d: %q is in italics, which are for terms, and not in docs/glossary.md", page, p.line, m[1])
				}
			}
		}
	}
	for _, term := range terms {
		if !strings.Contains(elsewhere.String(), term) {
			t.Errorf("docs/glossary.md has %q, which no other page uses", term)
		}
	}
}
