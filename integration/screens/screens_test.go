package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/integration/picture"
)

// TestMain lets the tests, like the program, run the commands that are shown.
func TestMain(m *testing.M) {
	if isProgram() {
		os.Exit(runProgram())
	}
	os.Exit(m.Run())
}

// The committed pictures are those that make screens draws: the commands print what they
// show.
func TestCommittedPicturesAreThoseDrawn(t *testing.T) {
	drawn, err := pictures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := picture.Check("../../docs", drawn); err != nil {
		t.Errorf("make screens draws others: %v", err)
	}
}

// What explain shows is about the limits of the page that shows it.
func TestExplainedLimitsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/steer.md")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := own.ReadFile("explain/limits/api.yaml")
	if err != nil || !strings.Contains(string(page), "```yaml\n"+string(limits)+"```") {
		t.Errorf("docs/steer.md has other limits than explain/limits/api.yaml, %v", err)
	}
}
