package main

import (
	"io"
	"os"
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

// columnsOf returns at which width texts are wrapped: that of a terminal, or 0 for never.
// In a pipe a line stays whole, so that grep finds all of it.
func columnsOf(out io.Writer) int {
	if !isTerminal(out) {
		return 0
	}
	width, _, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil || width < fewestColumns {
		return 0
	}
	return width
}

// wrapped returns the lines of a text, of at most width characters where its words allow
// that; all of it if width is 0 or less.
func wrapped(text string, width int) []string {
	if width <= 0 {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Split(text, " ") {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), word
			continue
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
