package integration

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// `ratelimitd top` at one daemon tells what all have denied.
func TestTopIsOfAllDaemons(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"single", "cluster"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var server *redistest.Server
			var addrs []string
			if mode == "single" {
				server = redistest.Start(t)
				addrs = []string{server.Addr()}
			} else {
				addrs = redistest.Cluster(t)
			}
			flags := steered(t, "domain: api\ndescriptors: [{key: closed, rate_limit: {requests: 0, period: 1h}}]\n", redisFlags(mode, addrs...)...)
			all := startAll(t, 3, flags...)
			for i, subjects := range []string{"aaa", "aab", "b"} {
				for _, subject := range subjects {
					all[i].ask("api", 1, "closed="+string(subject))
				}
			}
			const table = "COUNT  ERROR  SHARE  DOMAIN  RULE    SUBJECT\n"
			whole := table + "5      0      71.4%  api     closed  closed=a\n2      0      28.6%  api     closed  closed=b\nnobody else had more than 0\n"
			for _, d := range all {
				asynctest.Eventually(t, "all daemons answer", func() bool {
					out, _, code := d.steer("", "top", "api", "--window", "1h")
					return code == 0 && strings.Contains(out, ", by 3 daemons: 7 in all\n"+whole)
				})
			}
			goOn := all[2].hang()
			asynctest.Eventually(t, "the other daemon answers", func() bool {
				out, stderr, code := all[0].steer("", "top", "--window", "1h")
				if code != 4 || !strings.Contains(stderr, "since they did not answer: ") {
					t.Errorf("without one daemon it exits with %d: %s\n%s", code, stderr, out)
				}
				return strings.Contains(out, "by 2 daemons: 6 in all\n"+table+"5      0      83.3%")
			})
			goOn()
			if server == nil {
				return
			}
			server.Stop()
			out, stderr, code := all[0].steer("", "top", "--window", "1h")
			if code != 4 || !strings.HasPrefix(stderr, "other daemons are not in it: ") || !strings.Contains(out, "by 1 daemon: 3 in all\n") {
				t.Errorf("without Redis it exits with %d: %s\n%s", code, stderr, out)
			}
		})
	}
}
