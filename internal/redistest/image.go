//go:build unix

package redistest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	// builtImage is the name of the image made of the redis-server on PATH.
	// Its tag is the hash of what is in it.
	builtImage = "ratelimitd-redistest"
	// pulledImage is what is pulled where there is nothing local.
	pulledImage = "redis:7-alpine"
)

// imageMu lets one goroutine of the process look for the image.
var imageMu sync.Mutex

// findImage returns the name of a local image with Redis.
func findImage(ctx context.Context, cli *testcontainers.DockerClient) (string, error) {
	imageMu.Lock()
	defer imageMu.Unlock()
	name, err := localImage(ctx, cli)
	if err != nil || name != "" {
		return name, err
	}
	bin, err := lookRedis()
	if errors.Is(err, errUnavailable) {
		return pulledImage, pull(ctx, pulledImage)
	}
	if err != nil {
		return "", err
	}
	return builtFrom(ctx, cli, bin)
}

var officialTag = regexp.MustCompile(`^redis:[78]([.-]|$)`)

// localImage returns the official image that is there, or "".
func localImage(ctx context.Context, cli *testcontainers.DockerClient) (string, error) {
	list, err := cli.ImageList(ctx, client.ImageListOptions{
		Filters: make(client.Filters).Add("reference", "redis"),
	})
	if err != nil {
		return "", fmt.Errorf("list Docker images: %w", err)
	}
	var found []string
	for _, image := range list.Items {
		for _, tag := range image.RepoTags {
			if officialTag.MatchString(tag) {
				found = append(found, tag)
			}
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	return slices.Min(found), nil
}

func pull(ctx context.Context, image string) error {
	p, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(log.NewNoopLogger()))
	if err != nil {
		return fmt.Errorf("make a Docker client: %w", err)
	}
	defer p.Close()
	return p.PullImage(ctx, image)
}

// builtFrom returns the image made of bin and the libraries that it needs. It
// is built once: by the first test process that wants it.
func builtFrom(ctx context.Context, cli *testcontainers.DockerClient, bin string) (string, error) {
	files, err := libraries(ctx, bin)
	if err != nil {
		return "", err
	}
	root, err := archive(bin, files)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s:%x", builtImage, sha256.Sum256(root))[:len(builtImage)+1+16]
	return name, serialize(ctx, func() error {
		_, err := cli.ImageInspect(ctx, name)
		if !errdefs.IsNotFound(err) {
			return err
		}
		return importImage(ctx, cli, name, root, files)
	})
}

// libraries returns the files that the dynamic linker would load for bin, and
// the linker itself. A static bin has none.
func libraries(ctx context.Context, bin string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", bin).CombinedOutput()
	if bytes.Contains(out, []byte("not a dynamic executable")) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", bin, err, out)
	}
	var files []string
	for line := range strings.Lines(string(out)) {
		// name => /path (address), or /path (address) for the linker
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") && !slices.Contains(files, field) {
				files = append(files, field)
			}
		}
	}
	return files, nil
}

// archive returns a tar of a root directory with bin as redis-server and the
// libraries where they are here. Equal files make equal archives.
func archive(bin string, libraries []string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"data/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777}); err != nil {
			return nil, err
		}
	}
	add := func(from, to string) error {
		content, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("read a file for the image: %w", err)
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(to, "/"), Mode: 0o755, Size: int64(len(content))}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	}
	if err := add(bin, "/usr/local/bin/redis-server"); err != nil {
		return nil, err
	}
	for _, file := range libraries {
		if err := add(file, file); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// importImage makes an image whose only layer is root. The linker's cache of
// library directories is not in it, so it gets the directories by name.
func importImage(ctx context.Context, cli *testcontainers.DockerClient, name string, root []byte, libraries []string) error {
	var dirs []string
	for _, file := range libraries {
		if dir := path.Dir(file); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	changes := []string{"WORKDIR /data"}
	if len(dirs) > 0 {
		changes = append(changes, "ENV LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
	}
	res, err := cli.ImageImport(ctx,
		client.ImageImportSource{Source: bytes.NewReader(root), SourceName: "-"}, name,
		client.ImageImportOptions{Message: "redis-server for tests", Changes: changes})
	if err != nil {
		return fmt.Errorf("build a Docker image: %w", err)
	}
	defer res.Close()
	out, err := io.ReadAll(res) // the engine is done when it has said all
	if err != nil {
		return fmt.Errorf("build a Docker image: %w", err)
	}
	if _, err := cli.ImageInspect(ctx, name); err != nil {
		return fmt.Errorf("build a Docker image: %w: %s", err, out)
	}
	return nil
}
