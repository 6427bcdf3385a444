// Screens draws what terminals show of three commands, light and dark: explain, top and
// replay, as docs/explain-light.svg and so on. The commands are the real ones, and ask
// real servers that a scripted load has passed. All of it is on a clock of the program's
// own, so that every run draws the same.
//
//	go run ./integration/screens docs
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ratelimitd/ratelimitd/integration/picture"
	"github.com/ratelimitd/ratelimitd/internal/cli"
)

const (
	// program is the first word of the command lines that are shown. Called with it, this
	// program is that one: each command has an environment and a folder of its own then.
	program = "ratelimitd"
	// release is what a report says that it was made by: that of a build would change with
	// each commit.
	release = "0.1.0"
)

func main() {
	if isProgram() {
		os.Exit(runProgram())
	}
	picture.Main("screens", func() (map[string]string, error) { return pictures(context.Background()) })
}

// isProgram reports whether this process is to be the program whose commands are shown.
func isProgram() bool { return len(os.Args) > 1 && os.Args[1] == program }

// runProgram runs the command line, and returns its exit code.
func runProgram() int {
	return cli.Run(context.Background(), release, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// pictures returns the text of each picture by its file name.
func pictures(ctx context.Context) (map[string]string, error) {
	all := make(map[string]string)
	for _, s := range shown {
		typed, err := s.typed(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		for _, t := range themes {
			if all[s.name+"-"+t.Name+".svg"], err = draw(t, s.title, typed); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return all, nil
}
