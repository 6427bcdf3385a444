package integration

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// tenantPlans are plans of which each has less than the one before. Tenants have the
// largest unless another is assigned.
const tenantPlans = `
domain: api
descriptors:
  - key: tenant
    plans:
      huge: {name: year, algorithm: fixed_window, requests: 1000000, period: 365d}
      ten: {name: year, algorithm: fixed_window, requests: 10, period: 365d}
      three: {name: year, algorithm: fixed_window, requests: 3, period: 365d}
    plan: huge
`

const operatorToken = "a token for tests"

// steered returns the flags of daemons with these limits that the operator may steer.
func steered(t testing.TB, limits string, flags ...string) []string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "limits.yaml", limits)
	tokens := write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sha256.Sum256([]byte(operatorToken))))
	return append(flags, "--limits-path", dir, "--admin-tokens-file", tokens)
}

// startAll starts so many daemons.
func startAll(t testing.TB, n int, flags ...string) (all []*daemon) {
	t.Helper()
	for range n {
		all = append(all, start(t, flags...))
	}
	return all
}

// steer runs a command of the operator's at a daemon.
func (d *daemon) steer(input string, args ...string) (stdout, stderr string, code int) {
	d.t.Helper()
	return runCommand(d.t, []string{"RATELIMITD_TOKEN=" + operatorToken, "RATELIMITD_ADMIN_ADDRESS=" + d.admin}, input, args)
}

// export returns the lines of what the daemon has assigned.
func (d *daemon) export() []string {
	d.t.Helper()
	out, stderr, code := d.steer("", "assignments", "--export", "csv")
	if code != 0 {
		d.t.Fatalf("the export ends with %d: %s", code, stderr)
	}
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")[1:]
}

// steering returns the admin API as the operator uses it.
func (d *daemon) steering() adminv1.AdminServiceClient {
	d.t.Helper()
	withToken := func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		return invoke(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+operatorToken), method, in, out, conn, options...)
	}
	conn, err := grpc.NewClient(d.admin, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(withToken))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	return adminv1.NewAdminServiceClient(conn)
}

// imported is the summary of an import.
type imported struct {
	Rows, Created, Replaced, Unchanged, Failed, Unknown int
}

func (i imported) done() int { return i.Created + i.Replaced + i.Unchanged }

// importRows has the command import rows of CSV, and checks that it reports each. It
// may be called in any goroutine.
func (d *daemon) importRows(rows string) (sum imported, stderr string, code int) {
	d.t.Helper()
	out, stderr, code := d.steer(rows, "assign", "--domain", "api", "--json", "--from", "-")
	if err := json.Unmarshal([]byte(out), &sum); err != nil {
		d.t.Errorf("the import prints %q: %v\n%s", out, err, stderr)
	}
	if counted := sum.done() + sum.Failed + sum.Unknown; counted != sum.Rows {
		d.t.Errorf("the import counts %d rows of %d: %s", counted, sum.Rows, out)
	}
	if (code == 0) != (sum.done() == strings.Count(rows, "\n")-1) {
		d.t.Errorf("the import ends with %d: %s\n%s", code, out, stderr)
	}
	return sum, stderr, code
}

// importAll imports rows, of which all must be done.
func (d *daemon) importAll(rows string) imported {
	d.t.Helper()
	sum, stderr, code := d.importRows(rows)
	if sum.done() != sum.Rows {
		d.t.Fatalf("the import ends with %d: %+v\n%s", code, sum, stderr)
	}
	return sum
}

// rowsOf returns rows that assign each of n tenants the same.
func rowsOf(name string, n int, terms string) string {
	var b strings.Builder
	b.WriteString("entries,plan,limits,blocked,reason\n")
	for i := range n {
		fmt.Fprintf(&b, "tenant=%s-%06d,%s\n", name, i, terms)
	}
	return b.String()
}

// exportOf returns what rowsOf is exported as.
func exportOf(t testing.TB, rows string) (lines []string) {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(rows)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records[1:] {
		lines = append(lines, fmt.Sprintf("api,%s,%s,%s,,,,%s,,%s", r[0], r[1], r[2], r[3], r[4]))
	}
	return lines
}

// tenant returns the assignment of one with these terms.
func tenant(name string, terms *adminv1.Assignment) *adminv1.Assignment {
	terms.Domain, terms.Entries = "api", []*ratelimitv1.Entry{{Key: "tenant", Value: name}}
	return terms
}

// wantSame waits until all daemons have the same assigned, and returns it.
func wantSame(t testing.TB, daemons ...*daemon) (same []string) {
	t.Helper()
	asynctest.Eventually(t, "all daemons have the same", func() bool {
		same = daemons[0].export()
		for _, d := range daemons[1:] {
			if strings.Join(d.export(), "\n") != strings.Join(same, "\n") {
				return false
			}
		}
		return true
	})
	return same
}

// forAWhile returns a context for a change on a busy machine.
func forAWhile(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patient)
	t.Cleanup(cancel)
	return ctx
}

// atRest waits until a daemon uses little of a processor while no one asks.
func (d *daemon) atRest() {
	d.t.Helper()
	const long = time.Second
	asynctest.Eventually(d.t, "a daemon that nobody asks uses less than an eighth of a processor", func() bool {
		before := d.total("process_cpu_seconds_total")
		time.Sleep(long)
		return d.total("process_cpu_seconds_total")-before <= long.Seconds()/8
	})
}
