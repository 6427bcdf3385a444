// Command packaging makes what a release consists of: archives, Debian packages, lists of
// what is in the binaries, and sums. It is a module of its own, outside of go.work, so
// that its libraries are in no graph of the daemon or of its callers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

const usage = `usage: packaging release|deb|set-version -version v1.2.3 [flags]

  release      archives, packages, lists of modules and sums, of a clean tree
  deb          a Debian package of the tree as it is
  set-version  have all modules of the project require each other at the version`

// run runs a command line without the program's name.
func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	root := flags.String("root", "../..", "folder of the repository")
	text := flags.String("version", "", "the version, such as v1.2.3")
	to := flags.String("out", "", "folder to write to (default: below build/)")
	arch := flags.String("arch", runtime.GOARCH, "of deb: architectures, with commas between them")
	asItIs := flags.Bool("as-it-is", false, "of release: warn of a tree that is no release, in place of refusing it")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	version, err := parseVersion(*text)
	if err != nil {
		return err
	}
	repo, err := openRepository(*root)
	if err != nil {
		return err
	}
	in := func(folders ...string) string {
		if *to != "" {
			return *to
		}
		return filepath.Join(append([]string{repo.root, "build"}, folders...)...)
	}
	r := release{repo: repo, version: version, asItIs: *asItIs, build: repo.build, out: out}
	switch args[0] {
	case "release":
		r.platforms = allPlatforms
		return r.write(in("release", version))
	case "deb":
		for _, a := range strings.Split(*arch, ",") {
			r.platforms = append(r.platforms, platform{os: "linux", arch: a})
		}
		return r.writePackages(in("deb"))
	case "set-version":
		return setVersion(repo.root, version, out)
	}
	return fmt.Errorf("found %q\n%s", args[0], usage)
}
