package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"time"
)

// manPage returns the compressed page of section 1: what a binary of this machine prints
// as help of the program and of each command.
func manPage(binary, version string, when time.Time) ([]byte, error) {
	commands, err := printed(binary, "__complete", "")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, ".TH RATELIMITD 1 %s \"ratelimitd %s\"\n", when.Format(time.DateOnly), version)
	page.WriteString(".SH NAME\nratelimitd \\- rate\\-limit service\n.SH DESCRIPTION\n")
	if err := writeHelp(&page, binary); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(commands)) {
		name, _, isCommand := strings.Cut(line, "\t")
		if !isCommand || name == "help" || name == "completion" {
			continue
		}
		fmt.Fprintf(&page, ".SH \"ratelimitd %s\"\n", name)
		if err := writeHelp(&page, binary, name); err != nil {
			return nil, err
		}
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(page.Bytes())
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compressed.Bytes(), err
}

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`)

// writeHelp writes the help of a command, whose lines are laid out already.
func writeHelp(page *bytes.Buffer, binary string, command ...string) error {
	help, err := printed(binary, append(command, "--help")...)
	if err != nil {
		return err
	}
	page.WriteString(".nf\n")
	for line := range strings.Lines(string(help)) {
		page.WriteString(`\&` + roff.Replace(line)) // a dot that begins a line is text
	}
	page.WriteString(".fi\n")
	return nil
}
