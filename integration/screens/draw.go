package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/integration/picture"
)

// typed is a command line, and what it printed.
type typed struct{ line, printed string }

// theme has the colour of a window beside those of all pictures.
type theme struct {
	picture.Theme
	window string
	// denial has enough contrast to the window to be read as text.
	denial string
}

var themes = []theme{
	{Theme: picture.Light, window: "#f6f8fa", denial: "#b42318"},
	{Theme: picture.Dark, window: "#151b23", denial: "#ff8f85"},
}

// columns is the width of the terminal.
const columns = 80

// The layout, in pixels. Columns are 0.6 of the size of the font, as in nearly all
// monospaced ones, and lines close enough for the strokes of a tree to meet.
const (
	width      = 800
	fontSize   = 15
	columnStep = 9
	lineStep   = 18
	left       = (width - columns*columnStep) / 2
	firstLine  = 38
	bottom     = 24
	margin     = 8
)

type canvas struct{ picture.Canvas }

// draw returns a picture of a terminal, in which an empty line is before each command
// except the first. It is an error if a line has no room.
func draw(t theme, title string, commands []typed) (string, error) {
	lines := -1
	for i := range commands {
		cmd := &commands[i]
		cmd.printed = folded(cmd.printed)
		lines += 2 + strings.Count(cmd.printed, "\n")
	}
	height := firstLine + (lines-1)*lineStep + bottom
	c := new(canvas)
	c.Add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, width, height)
	c.Add(`  <title id="title">%s</title>`, escaped(title))
	c.Add(`  <style>`)
	c.Add(`    text { font-family: ui-monospace, SFMono-Regular, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; font-size: %dpx; fill: %s; }`, fontSize, t.Ink)
	c.Add(`    .page { fill: %s; }`, t.Page)
	c.Add(`    .window { fill: %s; stroke: %s; }`, t.window, t.Grid)
	c.Add(`    .prompt { fill: %s; }`, t.Faint)
	c.Add(`    .command { font-weight: 600; }`)
	c.Add(`    .denial { fill: %s; font-weight: 600; }`, t.denial)
	c.Add(`  </style>`)
	c.Add(`  <rect class="page" width="%d" height="%d"/>`, width, height)
	c.Add(`  <rect class="window" x="%d.5" y="%d.5" width="%d" height="%d" rx="6"/>`, margin, margin, width-2*margin-1, height-2*margin-1)
	y := firstLine
	for _, cmd := range commands {
		if err := c.line(y, "$ "+cmd.line, `<tspan class="prompt">$ </tspan><tspan class="command">`+escaped(cmd.line)+`</tspan>`); err != nil {
			return "", err
		}
		for line := range strings.Lines(cmd.printed) {
			y += lineStep
			line = strings.TrimSuffix(line, "\n")
			if err := c.line(y, line, denials.ReplaceAllString(escaped(line), `<tspan class="denial">$0</tspan>`)); err != nil {
				return "", err
			}
		}
		y += 2 * lineStep
	}
	c.Add(`</svg>`)
	return c.String(), nil
}

// denials matches what says in the output of explain that a request is denied.
var denials = regexp.MustCompile(`It would be denied|\bdenied \(this denies the request\)|\bdenies the request`)

// line draws a line, given its text and that in SVG. Its length is given, so that columns
// stay below each other in a font of another width.
func (c *canvas) line(y int, text, svg string) error {
	length := utf8.RuneCountInString(text)
	if length > columns {
		return fmt.Errorf("found a line of %d characters; allowed: %d: %s", length, columns, text)
	}
	if length > 0 {
		c.Add(`  <text xml:space="preserve" x="%d" y="%d" textLength="%d">%s</text>`, left, y, length*columnStep, svg)
	}
	return nil
}

// folded returns a text whose long lines go on in the next, broken at spaces.
func folded(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for utf8.RuneCountInString(line) > columns+1 {
			at := strings.LastIndexByte(string([]rune(line)[:columns+1]), ' ')
			if at <= 0 {
				break
			}
			b.WriteString(line[:at] + "\n")
			line = line[at+1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// escaped returns a text as XML has it.
func escaped(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
