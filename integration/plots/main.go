// Plots draws docs/algorithms-light.svg and docs/algorithms-dark.svg: what each algorithm
// admits of the same burst of requests. The store in memory decides, on a clock of the
// program's own, so that every run draws the same.
//
//	go run ./integration/plots docs
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: plots FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

// run writes the pictures into a folder.
func run(folder string) error {
	pictures, err := pictures()
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

// pictures returns the text of each picture by its file name.
func pictures() (map[string]string, error) {
	var panels []panel
	for _, p := range plotted {
		c, err := admit(p.spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.title, err)
		}
		p.curves = c
		panels = append(panels, p)
	}
	all := make(map[string]string)
	for _, t := range themes {
		all["algorithms-"+t.name+".svg"] = draw(t, panels)
	}
	return all, nil
}
