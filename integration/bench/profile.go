package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// profileLength is how long a daemon is profiled.
const profileLength = 8 * time.Second

// profile writes a CPU profile of a daemon under the load of its row.
func (s *subject) profile(ctx context.Context, d *daemon, path string) error {
	fetched := make(chan error, 1)
	go func() { fetched <- d.fetchProfile(ctx, path) }()
	_, err := s.slice(ctx, 0, profileLength, 0)
	if failed := <-fetched; err == nil {
		err = failed
	}
	return err
}

// fetchProfile asks the daemon for its profile of the next seconds.
func (d *daemon) fetchProfile(ctx context.Context, path string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", d.admin, int(profileLength.Seconds()))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	page, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer page.Body.Close()
	if page.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, page.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, page.Body)
	if failed := f.Close(); err == nil {
		err = failed
	}
	return err
}
