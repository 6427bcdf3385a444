package dial_test

import (
	"net"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// A daemon that hangs has not answered anything.
func TestADaemonThatHangsHasNotAnswered(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := &clitest.FakeAdmin{Address: l.Addr().String()}
	_, stderr, code := f.Run(t, "assignments", "--timeout", "10ms")
	if want := f.Address + " has not answered within --timeout: "; code != cmdline.ExitError || !strings.Contains(stderr, want) {
		t.Errorf("exits with %d: %s", code, stderr)
	}
}

func TestTokenGoesWithEachCall(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	t.Setenv(dial.TokenVariable, "from-environment")
	if _, stderr, code := f.Run(t, "audit"); code != 0 || f.Token != "Bearer from-environment" || stderr != "" {
		t.Errorf("audit exits with %d and sends %q: %s", code, f.Token, stderr)
	}
	if _, _, code := f.Run(t, "audit", "--token-file", filetest.Write(t, t.TempDir(), "token", "from-file\n")); code != 0 || f.Token != "Bearer from-file" {
		t.Errorf("audit exits with %d and sends %q", code, f.Token)
	}
	if _, stderr, code := f.Run(t, "audit", "--token-file", filetest.Write(t, t.TempDir(), "token", "\n")); code != cmdline.ExitError || !strings.Contains(stderr, "does not hold one line with a token") {
		t.Errorf("audit with an empty file exits with %d: %s", code, stderr)
	}
}

func TestUnreachableDaemonIsAdvisedOn(t *testing.T) {
	for _, args := range []string{
		"assignments --admin-address 127.0.0.1:1", "explain --admin-address 127.0.0.1:1 --domain api a=b", "health --address 127.0.0.1:1",
	} {
		_, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd"}, strings.Fields(args)...)...)
		if code != cmdline.ExitError || !strings.Contains(stderr, "127.0.0.1:1 cannot be reached") || !strings.Contains(stderr, "start a daemon there (ratelimitd serve --limits-path FOLDER)") {
			t.Errorf("%s exits with %d: %s", args, code, stderr)
		}
	}
	f := clitest.StartFakeAdmin(t)
	if _, stderr, code := f.Run(t, "audit", "--tls"); code != cmdline.ExitError || !strings.Contains(stderr, "\nthe port speaks no TLS: leave out the --tls flags\n") {
		t.Errorf("--tls to a port without exits with %d: %s", code, stderr)
	}
	t.Setenv("RATELIMITD_ADMIN_ADDRESS", "")
	if _, stderr, _ := clitest.Run(t, "", "ratelimitd", "audit"); !strings.Contains(stderr, "has no admin port: set admin.address, which is empty, or give --admin-address") {
		t.Errorf("without an admin port audit says %s", stderr)
	}
}
