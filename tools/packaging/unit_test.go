package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd takes the unit without a word, and finds little that it leaves open.
func TestUnitIsSound(t *testing.T) {
	need(t, "systemd-analyze")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ratelimitd"), must(t, smallBinary), 0o755)
	text, err := os.ReadFile(filepath.Join(projectRoot, "deploy/systemd/ratelimitd.service"))
	if err != nil {
		t.Fatal(err)
	}
	const program = "/usr/bin/ratelimitd "
	if strings.Count(string(text), program) != 1 {
		t.Fatalf("the unit does not run %s once", program)
	}
	unit := filepath.Join(dir, "ratelimitd.service")
	write(t, unit, []byte(strings.Replace(string(text), program, filepath.Join(dir, "ratelimitd")+" ", 1)), 0o644)
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// Exposure is 1.2 of 10 with systemd 252. What is left is that it has a network.
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
