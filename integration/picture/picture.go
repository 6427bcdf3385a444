// Package picture has what the programs that draw the pictures of docs/ share: plots and
// screens. Each picture is an SVG in two themes, and every run draws the same.
package picture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Theme is the style of a picture; all else is the same in both.
type Theme struct {
	Name string
	// Page is behind all, Ink and Faint are of text, and Grid is of lines beside it.
	Page, Ink, Faint, Grid string
}

// The themes.
var (
	Light = Theme{Name: "light", Page: "#ffffff", Ink: "#1f2328", Faint: "#59636e", Grid: "#d1d9e0"}
	Dark  = Theme{Name: "dark", Page: "#0d1117", Ink: "#f0f6fc", Faint: "#9198a1", Grid: "#3d444d"}
)

// Canvas is an SVG that grows.
type Canvas struct{ strings.Builder }

// Add adds a line.
func (c *Canvas) Add(format string, args ...any) {
	fmt.Fprintf(c, format+"\n", args...)
}

// Main is that of a program whose only argument is the folder for its pictures. draw returns
// the text of each by its file name.
func Main(program string, draw func() (map[string]string, error)) {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s FOLDER\n", program)
		os.Exit(2)
	}
	if err := write(os.Args[1], draw); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(1)
	}
}

func write(folder string, draw func() (map[string]string, error)) error {
	pictures, err := draw()
	if err != nil {
		return err
	}
	for name, text := range pictures {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error for each picture that is missing in a folder, or differs there.
func Check(folder string, pictures map[string]string) error {
	var errs []error
	for name, want := range pictures {
		path := filepath.Join(folder, name)
		if got, err := os.ReadFile(path); err != nil {
			errs = append(errs, err)
		} else if string(got) != want {
			errs = append(errs, fmt.Errorf("%s differs from what is drawn", path))
		}
	}
	return errors.Join(errs...)
}
