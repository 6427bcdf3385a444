package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// fewestColumns is how wide a terminal is at least for texts to be wrapped.
const fewestColumns = 40

// helpColumns is how wide help is where nobody says.
const helpColumns = 80

// columnsOf returns at which width prose is wrapped: what COLUMNS says, that of a terminal,
// or 0 for never. In a pipe a line stays whole, so that grep finds all of it.
func columnsOf(out io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= fewestColumns {
		return n
	}
	if !isTerminal(out) {
		return 0
	}
	width, _, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil || width < fewestColumns {
		return 0
	}
	return width
}

// tableColumns returns at which width rows of tables are wrapped. In a pipe each stays on
// one line, whatever COLUMNS says: a program reads them.
func tableColumns(out io.Writer) int {
	if !isTerminal(out) {
		return 0
	}
	return columnsOf(out)
}

// wrapped returns the lines of a text, of at most width characters where its words allow
// that; all of it if width is 0 or less.
func wrapped(text string, width int) []string {
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

// shellFields splits a text at its blanks, except those between quotes that begin a word:
// that is how spelling.ShellWord writes what a person pastes.
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

// quotedEnd returns where the quotes end that a text begins with, or 0 if it does not, or
// if they do not end: it is an apostrophe then.
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

// fitted returns the lines of a row whose cells have two blanks or more between them. Its
// last cell is wrapped below its beginning. Where there is no room for that, cells go on
// on lines of their own.
func fitted(row string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(row) <= width {
		return []string{row}
	}
	const indent, fewest = "    ", 24
	var lines []string
	line := row[:len(row)-len(strings.TrimLeft(row, " "))]
	cells := cellsOf(row[len(line):])
	for i, cell := range cells {
		isLast := i == len(cells)-1
		if utf8.RuneCountInString(line)+utf8.RuneCountInString(cell.text) <= width {
			line += cell.text + cell.blanks
			continue
		}
		room := width - utf8.RuneCountInString(line)
		if strings.TrimSpace(line) != "" && (!isLast || room < fewest) {
			lines, line = append(lines, strings.TrimRight(line, " ")), indent
			room = width - len(indent)
		}
		below := strings.Repeat(" ", utf8.RuneCountInString(line))
		for j, part := range wrapped(cell.text, room) {
			if j > 0 {
				lines, line = append(lines, line), below
			}
			line += part
		}
		line += cell.blanks
	}
	return append(lines, strings.TrimRight(line, " "))
}

// cell is one of a row, with the blanks behind it.
type cell struct{ text, blanks string }

func cellsOf(row string) []cell {
	var cells []cell
	for row != "" {
		end := len(row)
		for i := 0; i < len(row); i += wordEnd(row[i:]) + 1 {
			if end = i + wordEnd(row[i:]); strings.HasPrefix(row[end:], "  ") {
				break
			}
		}
		rest := strings.TrimLeft(row[end:], " ")
		cells = append(cells, cell{row[:end], row[end : len(row)-len(rest)]})
		row = rest
	}
	return cells
}

// tableWriter fits the lines of tables into a terminal's width.
type tableWriter struct {
	to    io.Writer
	width int
	part  []byte // of a line without its end
}

// tableOn returns what tables are written to, in whole lines.
func tableOn(out io.Writer) io.Writer {
	if width := tableColumns(out); width > 0 {
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
		for _, line := range fitted(string(w.part[:i]), w.width) {
			lines.WriteString(line + "\n")
		}
		w.part = w.part[i+1:]
	}
}
