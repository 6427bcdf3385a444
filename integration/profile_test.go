package integration

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
	"testing"
)

const profile = "../cmd/ratelimitd/default.pgo"

// The compiler looks for the functions of the profile by their names, and says nothing
// where it finds none: a package that moved is compiled as if there were no profile.
func TestProfileKnowsTheWayOfARequest(t *testing.T) {
	t.Parallel()
	packed, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/ratelimitd/ratelimitd/"
	for _, function := range []string{
		module + "internal/server/envoyrls.(*envoyCall).unmarshal",
		module + "internal/decide.(*Decider).Decide",
		module + "internal/bucket/memstore.(*Store).Take",
		module + "internal/redisstore.(*Store).Take",
		module + "internal/server/takeapi.(*takeStream).takeOver",
		"google.golang.org/grpc.(*Server).processRPC",
	} {
		if !bytes.Contains(text, []byte(function)) {
			t.Errorf("%s does not know %s: make profile", path.Base(profile), function)
		}
	}
}
