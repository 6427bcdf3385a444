// Package terminal handles what a command writes to: its width, at which prose and tables
// are wrapped, the keys that end a display, and lines of JSON for programs. It imports
// spelling and apijson.
package terminal

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether the output is shown on a terminal.
func Is(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// MinColumns is the minimum width of a terminal for texts to be wrapped.
const MinColumns = 40

// Columns returns the width at which prose is wrapped: the value of COLUMNS, the width of
// a terminal, or 0 for never. In a pipe a line stays whole, so that grep finds all of it.
func Columns(out io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= MinColumns {
		return n
	}
	if !Is(out) {
		return 0
	}
	width, _, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil || width < MinColumns {
		return 0
	}
	return width
}

// TableColumns returns the width at which rows of tables are wrapped. In a pipe each
// stays on one line, whatever COLUMNS says, because a program reads them.
func TableColumns(out io.Writer) int {
	if !Is(out) {
		return 0
	}
	return Columns(out)
}

// Wrapped returns the lines of a text, of at most width characters where its words allow
// that; the whole text if width is 0 or less.
func Wrapped(text string, width int) []string {
	if width <= 0 {
		return []string{text}
	}
	var lines []string
	line := ""
	for i, word := range shellFields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// shellFields splits a text at its blanks, except those in quotes that begin a word,
// which is how spelling.ShellWord writes what a person pastes.
func shellFields(text string) []string {
	var words []string
	for {
		end := wordEnd(text)
		words = append(words, text[:end])
		if end == len(text) {
			return words
		}
		text = text[end+1:]
	}
}

// wordEnd returns where the first word of a text ends.
func wordEnd(text string) int {
	quoted := quotedEnd(text)
	if i := strings.IndexByte(text[quoted:], ' '); i >= 0 {
		return quoted + i
	}
	return len(text)
}

// quotedEnd returns the end of the quotes that a text begins with, or 0 if it has none or
// they are not closed, in which case the first is an apostrophe.
func quotedEnd(text string) int {
	i := 1
	escapes := strings.HasPrefix(text, "$'")
	if escapes {
		i = 2
	} else if !strings.HasPrefix(text, "'") {
		return 0
	}
	for ; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] == '\'' && !escapes && strings.HasPrefix(text[i:], `'\''`):
			i += len(`'\'`)
		case text[i] == '\'':
			return i + 1
		}
	}
	return 0
}

// indent begins the further lines of a row that is too wide.
const indent = "    "

// tableWriter wraps the lines of tables at a terminal's width.
type tableWriter struct {
	to    io.Writer
	width int
	part  []byte // of a line without its end
}

// Table returns a writer for tables, to be written in whole lines.
func Table(out io.Writer) io.Writer { return TableAt(out, TableColumns(out)) }

// Messages returns a writer for messages, to be written in whole lines: on a terminal
// they are wrapped by words. In a pipe a line stays whole.
func Messages(out io.Writer) io.Writer { return Table(out) }

// TableAt returns a writer for tables of a width, to be written in whole lines; 0 is any
// width.
func TableAt(out io.Writer, width int) io.Writer {
	if width > 0 {
		return &tableWriter{to: out, width: width}
	}
	return out
}

// Write implements io.Writer.
func (w *tableWriter) Write(text []byte) (int, error) {
	w.part = append(w.part, text...)
	var lines strings.Builder
	for {
		i := bytes.IndexByte(w.part, '\n')
		if i < 0 {
			_, err := io.WriteString(w.to, lines.String())
			return len(text), err
		}
		w.writeRow(&lines, string(w.part[:i]))
		w.part = w.part[i+1:]
	}
}

// writeRow writes a row, on more than one line if it is wider than the terminal.
func (w *tableWriter) writeRow(to *strings.Builder, row string) {
	if utf8.RuneCountInString(row) <= w.width {
		to.WriteString(row + "\n")
		return
	}
	for i, line := range Wrapped(row, w.width-len(indent)) {
		if i > 0 {
			line = indent + strings.TrimLeft(line, " ")
		}
		to.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
