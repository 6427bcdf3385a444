package limitsfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

func TestErrorsOfNetworks(t *testing.T) {
	t.Parallel()
	schema := limitsSchema(t)
	const limit = ", rate_limit: {requests: 1, period: 1s}}\n"
	for _, c := range []struct{ descriptors, want string }{
		{"- {key: a, cidr: [10.0.0.1/8]" + limit, `3:19: descriptors[0].cidr[0]: found the text "10.0.0.1/8"; allowed: 10.0.0.0/8, without bits beyond the length and with IPv4 as such`},
		{`- {key: a, cidr: ["::ffff:10.0.0.0/104"]` + limit, `3:19: descriptors[0].cidr[0]: found the text "::ffff:10.0.0.0/104"; allowed: 10.0.0.0/8, without bits beyond the length and with IPv4 as such`},
		{"- {key: a, cidr: [10.0.0.1]" + limit, `3:19: descriptors[0].cidr[0]: found the text "10.0.0.1"; allowed: an address with its length: 10.0.0.1/32`},
		{"- {key: a, cidr: [office]" + limit, `3:19: descriptors[0].cidr[0]: found the text "office"; allowed: a network such as 10.0.0.0/8 or 2001:db8::/32`},
		{"- {key: a, cidr: []" + limit, "3:18: descriptors[0].cidr: found an empty list; allowed: at least one network"},
		{"- {key: a, cidr: 10.0.0.0/8" + limit, `3:18: descriptors[0].cidr: found the text "10.0.0.0/8"; allowed: a list of networks, such as [10.0.0.0/8, 2001:db8::/32]`},
		{"- {key: a, value: b, cidr: [10.0.0.0/8]" + limit, "3:22: descriptors[0].cidr: found cidr beside value; allowed: one of them: value for a text, cidr for the addresses of networks"},
		{"- {key: a, cidr: [10.0.0.0/8, 10.0.0.0/8]" + limit, "3:31: descriptors[0].cidr[1]: found the network 10.0.0.0/8 again, the first is on line 3; allowed: each network once for a key of a list"},
		{"- {key: a, cidr: [10.0.0.0/8]" + limit + "- {key: a, cidr: [11.0.0.0/8, 10.0.0.0/8]" + limit, "4:31: descriptors[1].cidr[1]: found the network 10.0.0.0/8 again, the first is on line 3; allowed: each network once for a key of a list"},
		{"- {key: a, value: 10.0.0.0/8" + limit + "- {key: a, cidr: [10.0.0.0/8]" + limit, "4:19: descriptors[1].cidr[0]: found the network 10.0.0.0/8 again, the first is on line 3; allowed: each network once for a key of a list"},
		{"- {key: a, cidr: [10.0.0.0/8]" + limit + "- {key: a, value: 10.0.0.0/8" + limit, `4:3: descriptors[1]: found "a" with the value "10.0.0.0/8" again, the first is on line 3; allowed: each key with each value once in a list`},
		{"- {key: a, network: {}" + limit, "3:21: descriptors[0].network: found no length; allowed: {ipv4: 32, ipv6: 64}, or one of them"},
		{"- {key: a, network: {ipv4: 33}" + limit, "3:28: descriptors[0].network.ipv4: found the number 33; allowed: a whole number from 1 to 32"},
		{"- {key: a, value: b, network: {ipv4: 8}" + limit, "3:22: descriptors[0].network: found network beside a value that is one text; allowed: network beside a cidr, a value with *, or no value"},
		{"- {key: a, cidr: [10.0.0.0/8], network: {ipv4: 7}" + limit, "3:41: descriptors[0].network: found a network of 7 bits, which is larger than 10.0.0.0/8; allowed: at least 8 bits"},
		{"- {key: a, cidr: [10.0.0.0/8], network: {ipv4: 8}, share_threshold: true" + limit, "3:32: descriptors[0].network: found network beside share_threshold; allowed: one of them: share_threshold counts all addresses of a prefix together"},
		{"- {key: a, network: {ipv4: 8}, rate_limit: {algorithm: concurrency, requests: 1, hold: 1s}}\n", "3:12: descriptors[0].network: found network on a concurrency; allowed: it on a descriptor above: the value of the last entry names the holder"},
	} {
		text := "domain: d\ndescriptors:\n" + c.descriptors
		_, found, _ := strings.Cut(c.want, ": found ")
		found, _, _ = strings.Cut(found, ";")
		schema.refuses(t, found, text)
		path := filetest.Write(t, t.TempDir(), "limits.yaml", text)
		_, err := limitsfile.Load(path)
		var errs yamlfile.Errors
		if !errors.As(err, &errs) || strings.ReplaceAll(err.Error(), path+":", "") != c.want {
			t.Errorf("%s\ngot:  %v\nwant: %s", c.descriptors, err, c.want)
		}
	}
}

func TestMergedFilesHaveEachNetworkOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: d\ndescriptors: [{key: a, cidr: [10.0.0.0/8], rate_limit: {requests: 1, period: 1s}}]\n")
	filetest.Write(t, dir, "b.yaml", "domain: d\ndescriptors: [{key: a, cidr: [11.0.0.0/8, 10.0.0.0/8], rate_limit: {requests: 1, period: 1s}}]\n")
	_, err := limitsfile.Options{MergeDomains: true}.Load(dir)
	if err == nil || !strings.Contains(err.Error(), `"a" with the value "11.0.0.0/8 and 1 more" again, the first is in `) {
		t.Errorf("got %v", err)
	}
}

func TestANetworkWrittenAsValueIsAWarning(t *testing.T) {
	t.Parallel()
	got := warningsOf(t, "domain: d\ndescriptors:\n- {key: a, value: 10.0.0.0/8, rate_limit: &l {requests: 1, period: 1s}}\n- {key: masked_remote_address, value: 10.0.0.0/8, rate_limit: *l}\n- {key: path, value: /8, rate_limit: *l}\n")
	if want := "3:19: descriptors[0].value: is compared as a text, so no address matches it; for the addresses of this network write cidr: [10.0.0.0/8]"; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %s", got, want)
	}
}
