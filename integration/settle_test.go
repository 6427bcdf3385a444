package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const tokenLimits = `domain: llm
descriptors:
  - {key: user, rate_limit: {name: minute, algorithm: sliding_window, requests: 1000, period: 1h}}
`

// postJSON posts a body in protobuf JSON and reads the answer, whatever its status.
func (d *daemon) postJSON(path, body string, answer proto.Message) {
	d.t.Helper()
	r, err := http.Post("http://"+d.http+path, "application/json", strings.NewReader(body))
	if err != nil {
		d.t.Error(err)
		return
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = protojson.Unmarshal(text, answer)
	}
	if err != nil {
		d.t.Errorf("%s of %s: %v in %s", path, body, err, text)
	}
}

// reserve takes tokens of a user as an id.
func (d *daemon) reserve(id string, cost int) *ratelimitv1.TakeResponse {
	r := new(ratelimitv1.TakeResponse)
	d.postJSON("/v1/take", fmt.Sprintf(`{"domain":"llm","id":%q,"descriptors":[{"entries":[{"key":"user","value":"alice"}],"cost":%d}]}`, id, cost), r)
	return r
}

// settle settles an id to what was used.
func (d *daemon) settle(id string, used int) *ratelimitv1.SettleResponse {
	r := new(ratelimitv1.SettleResponse)
	d.postJSON("/v1/settle", fmt.Sprintf(`{"domain":"llm","id":%q,"descriptors":[{"entries":[{"key":"user","value":"alice"}],"cost":%d}]}`, id, used), r)
	return r
}

// What a daemon took that was killed another settles, and over all of them what was used
// is what counts.
func TestSettlementsOutliveTheirDaemon(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"single":  redisFlags("single", redistest.Single(t)),
		"cluster": redisFlags("cluster", redistest.Cluster(t)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append(flags, "--limits-path", write(t, t.TempDir(), "limits.yaml", tokenLimits))
			killed, other, third := start(t, flags...), start(t, flags...), start(t, flags...)
			for i := range 5 {
				if !killed.reserve(fmt.Sprint(i), 100).GetAllowed() {
					t.Fatal("a first request is denied")
				}
			}
			killed.stop(syscall.SIGKILL)
			var wait sync.WaitGroup
			var used atomic.Int64
			for i, d := range []*daemon{other, third, other} {
				wait.Go(func() {
					for n := range 60 {
						id := fmt.Sprint(i, " ", n)
						if d.reserve(id, 50).GetAllowed() {
							if r := d.settle(id, n%30); !r.GetSettled() || r.GetLimits()[0].GetTakes() != 1 {
								t.Errorf("%s is settled as %v", id, r)
							}
							used.Add(int64(n % 30))
						}
					}
				})
			}
			wait.Wait()
			for i := range 5 {
				for _, d := range []*daemon{third, other} { // twice, by two daemons
					if r := d.settle(fmt.Sprint(i), 10*i); !r.GetSettled() {
						t.Errorf("what the killed daemon took is settled as %v", r)
					}
				}
			}
			used.Add(0 + 10 + 20 + 30 + 40)
			peek := new(ratelimitv1.TakeResponse)
			other.postJSON("/v1/take", `{"domain":"llm","descriptors":[{"entries":[{"key":"user","value":"alice"}],"cost":0}]}`, peek)
			if left := peek.GetLimits()[0].GetRemaining(); int64(left) != max(0, 1000-used.Load()) {
				t.Errorf("%d remain, %d were used", left, used.Load())
			}
		})
	}
}
