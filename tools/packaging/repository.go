package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// repository is a checkout of the project.
type repository struct {
	root string
	// time is that of everything that is written.
	time time.Time
}

// openRepository opens the checkout at root. Its time is that of SOURCE_DATE_EPOCH, or of
// the commit.
func openRepository(root string) (repository, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return repository{}, err
	}
	r := repository{root: root}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = r.git("log", "-1", "--format=%ct"); err != nil {
			return r, fmt.Errorf("the time of the commit, which SOURCE_DATE_EPOCH makes needless: %w", err)
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return r, fmt.Errorf("SOURCE_DATE_EPOCH: found %q; allowed: seconds since 1970", seconds)
	}
	r.time = time.Unix(n, 0).UTC()
	return r, nil
}

// git returns what a git command prints, without space around it.
func (r repository) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.root
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(errOut.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// changes returns a sentence if files differ from the commit.
func (r repository) changes() (string, error) {
	out, err := r.git("status", "--porcelain")
	if err != nil || out == "" {
		return "", err
	}
	lines := strings.Split(out, "\n")
	const maxShown = 5
	shown := strings.Join(lines[:min(len(lines), maxShown)], ", ")
	return fmt.Sprintf("%d files differ from the commit (%s); commit or stash them", len(lines), shown), nil
}

// misplaced returns a sentence for each of the tags that exists at another commit, and the
// tags that do not exist.
func (r repository) misplaced(tags []string) (complaints, missing []string, err error) {
	head, err := r.git("rev-parse", "HEAD")
	if err != nil {
		return nil, nil, err
	}
	for _, tag := range tags {
		known, err := r.git("tag", "--list", tag)
		if err != nil {
			return nil, nil, err
		}
		if known == "" {
			missing = append(missing, tag)
			continue
		}
		at, err := r.git("rev-list", "-n1", "refs/tags/"+tag)
		if err != nil {
			return nil, nil, err
		}
		if at != head {
			complaints = append(complaints, fmt.Sprintf("the tag %s is at the commit %.12s, and HEAD is %.12s; a published version never moves", tag, at, head))
		}
	}
	return complaints, missing, nil
}
