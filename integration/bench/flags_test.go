package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Flags reach the benchmark through make and a shell as they were written.
func TestFlagsThroughMake(t *testing.T) {
	t.Parallel()
	words := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(words, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, bench string
		want        []string
	}{
		{"none", "", nil},
		{"one", "-overload", []string{"-overload"}},
		{"a regular expression", "-run ^(a|b)$", []string{"-run", "^(a|b)$"}},
		{"quotes", `-run '^take x' -slice "2s"`, []string{"-run", "^take x", "-slice", "2s"}},
		{"what a shell would run or list", "-run `a`;$(HOME)*", []string{"-run", "`a`;$(HOME)*"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("make", "-s", "-C", "../..", "-o", "tools", "bench", "GO="+words, "BENCH="+c.bench)
			cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
			out, err := cmd.CombinedOutput()
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			if want := append([]string{"run", "./integration/bench"}, c.want...); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %q, want %q", err, got, want)
			}
		})
	}
}
