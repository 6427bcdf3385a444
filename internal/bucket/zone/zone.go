// Package zone has the time zones of the IANA, in a copy that is part of the program:
// whatever the machine has installed, all daemons of a release compute the same borders.
// It imports nothing of the project, and of the library nothing that looks for zones
// elsewhere.
//
// zoneinfo.zip is the file of that name that Go ships, and RELEASE the release of the
// IANA's data in it; `make zones` renews both.
package zone

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed zoneinfo.zip
var archive []byte

//go:embed RELEASE
var release string

// UTC is the name of the zone that is no place.
const UTC = "UTC"

// areas begin the names of places. Other names are of offsets, of rules without a place,
// or old names of countries.
var areas = []string{"Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"}

// file is the data of a zone.
type file struct {
	data []byte
	load func() *time.Location
}

// files has all zones of the archive by name, those that are no place too.
var files = sync.OnceValue(func() map[string]*file {
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		panic(fmt.Sprintf("zone: the embedded data cannot be read: %v", err))
	}
	all := make(map[string]*file, len(r.File))
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		data := read(f)
		all[f.Name] = &file{data: data, load: sync.OnceValue(func() *time.Location {
			l, err := time.LoadLocationFromTZData(f.Name, data)
			if err != nil {
				panic(fmt.Sprintf("zone: the embedded data of %s cannot be read: %v", f.Name, err))
			}
			return l
		})}
	}
	return all
})

func read(f *zip.File) []byte {
	r, err := f.Open()
	if err == nil {
		defer r.Close()
		var data []byte
		if data, err = io.ReadAll(r); err == nil {
			return data
		}
	}
	panic(fmt.Sprintf("zone: the embedded data of %s cannot be read: %v", f.Name, err))
}

// UnknownError says that a name is none of a zone, or of one that is no place.
type UnknownError struct {
	Name string
	// Near are at most three names that may be meant.
	Near []string
}

// Error implements error.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("time_zone: found %s; allowed: %s", e.Found(), e.Allowed())
}

// Found shows the name.
func (e *UnknownError) Found() string { return fmt.Sprintf("%.80q", e.Name) }

// Allowed says which names are allowed.
func (e *UnknownError) Allowed() string {
	if len(e.Near) == 0 {
		return "UTC, or a place of the IANA's list, such as Europe/Berlin"
	}
	return "UTC, or a place of the IANA's list; the nearest: " + strings.Join(e.Near, ", ")
}

// Load returns the zone of a place, or UTC. All calls for a name return the same pointer,
// so zones can be compared. The error is an *UnknownError.
func Load(name string) (*time.Location, error) {
	if name == UTC {
		return time.UTC, nil
	}
	if f := files()[name]; f != nil && isPlace(name) {
		return f.load(), nil
	}
	return nil, &UnknownError{Name: name, Near: nearest(name)}
}

func isPlace(name string) bool {
	area, _, found := strings.Cut(name, "/")
	return found && slices.Contains(areas, area)
}

// Names returns the names that Load knows, sorted.
var Names = sync.OnceValue(func() []string {
	names := []string{UTC}
	for name := range files() {
		if isPlace(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// Version names the data: the IANA's release, and a hash of what is embedded.
var Version = sync.OnceValue(func() string {
	sum := sha256.Sum256(archive)
	return strings.TrimSpace(release) + "-" + hex.EncodeToString(sum[:4])
})
