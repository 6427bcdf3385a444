package assign_test

import (
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestTableFindsWhatIsNear(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	put := func(domain string, entries ...bucket.Entry) {
		table.Put(&assign.Assignment{Subject: assign.Subject{Domain: domain, Entries: entries}, Terms: assign.Terms{Blocked: true}})
	}
	tenant := func(value string) bucket.Entry { return bucket.Entry{Key: "tenant", Value: value} }
	user := bucket.Entry{Key: "user", Value: "u"}
	for _, value := range []string{"", "a", "b", "\U0010ffff", "a / user=u"} {
		put("api", tenant(value))
	}
	put("api", tenant("a"), user)
	put("api", tenant("ab"), user)
	put("api", bucket.Entry{Key: "ten-ant", Value: "z"}, user, user)
	put("api", bucket.Entry{Key: "tenants", Value: "z"})
	put("api2", bucket.Entry{Key: "zone"})
	if keys := table.FirstKeys("api", 10); !slices.Equal(keys, []string{"ten-ant", "tenant", "tenants"}) {
		t.Errorf("the first keys are %q", keys)
	}
	if keys := table.FirstKeys("api", 2); len(keys) != 2 || len(table.FirstKeys("ap", 2)) != 0 {
		t.Errorf("the first two keys are %q", keys)
	}
	longer := table.Longer("api", []bucket.Entry{tenant("a")}, 10)
	if len(longer) != 1 || assign.Print(longer[0].Entries) != "tenant=a / user=u" || len(longer[0].Entries) != 2 {
		t.Errorf("behind tenant=a there are %v", longer)
	}
	for size, want := range []bool{false, true, true, true, false} {
		if table.HasSize("api", size) != want || table.HasSize("none", size) {
			t.Errorf("whether there are subjects of %d entries is not %t", size, want)
		}
	}
	if names := table.DomainNames(); !slices.Equal(names, []string{"api", "api2"}) {
		t.Errorf("the domains are %q", names)
	}
}
