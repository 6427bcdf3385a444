package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/network"
)

// Networks say which addresses a descriptor matches, and how they are counted.
type Networks struct {
	// CIDR are the prefixes whose addresses match, instead of a value; none where the
	// values are matched as texts.
	CIDR []netip.Prefix
	// Lengths are those of the networks that are counted.
	Lengths network.Lengths
	// IsShared means that all addresses of a prefix of CIDR are counted as one.
	IsShared bool
}

// isCIDR reports whether a descriptor matches by prefixes.
func (n *Networks) isCIDR() bool { return n != nil && len(n.CIDR) > 0 }

// andMore is between the first prefix of a list and the number of the others.
const andMore = " and "

// CIDRText names prefixes by the first of them. It is the value of a descriptor's entry.
func CIDRText(prefixes []netip.Prefix) string {
	text := prefixes[0].String()
	if more := len(prefixes) - 1; more > 0 {
		text += fmt.Sprintf("%s%d more", andMore, more)
	}
	return text
}

// FirstCIDR returns the text of the first prefix of what CIDRText returned, and any other
// value as it is.
func FirstCIDR(value string) string {
	first, _, _ := strings.Cut(value, andMore)
	if _, err := netip.ParsePrefix(first); err != nil {
		return value
	}
	return first
}

// SetNetworks sets which addresses the descriptor matches, before it is reachable.
func (n *Node) SetNetworks(networks *Networks) { n.networks = networks }

// Networks returns them; nil where values are texts.
func (n *Node) Networks() *Networks { return n.networks }

// Networks returns those of the rule's own descriptor, or nil.
func (r *Rule) Networks() *Networks { return r.position.networks }

// HasCIDR reports whether the descriptor matches addresses by prefixes.
func (n *Node) HasCIDR() bool { return n.networks.isCIDR() }

// SharesCounters reports whether values of the rule's descriptors share a counter by
// share_threshold.
func (r *Rule) SharesCounters() bool {
	networks := r.position.networks
	return r.Shared != nil || networks != nil && networks.IsShared
}

// counted returns the text by which an address, or a network, is counted: the one that was
// sent if that is the same. prefix is the one of CIDR that it matches.
func (n *Networks) counted(sent string, value, prefix netip.Prefix) string {
	value = n.Lengths.Of(value)
	if n.IsShared {
		value = prefix
	}
	var room [64]byte
	text := network.AppendText(room[:0], value)
	if string(text) == sent {
		return sent
	}
	return string(text)
}

// sameAs reports whether both match the same addresses, and count them alike.
func (n *Networks) sameAs(other *Networks) bool {
	if n == nil || other == nil {
		return n == other
	}
	return n.Lengths == other.Lengths && n.IsShared == other.IsShared && slices.Equal(n.sorted(), other.sorted())
}

// sorted returns the prefixes in one order.
func (n *Networks) sorted() []netip.Prefix {
	return slices.SortedFunc(slices.Values(n.CIDR), netip.Prefix.Compare)
}

// HasNetworksOf reports whether another descriptor matches the same addresses, and counts
// them alike.
func (n *Node) HasNetworksOf(other *Node) bool { return n.networks.sameAs(other.networks) }

// cidrs are the descriptors of one key at one level that match addresses by prefixes.
type cidrs struct {
	nodes []*Node // in the order of the file
	table bart.Table[*Node]
}

// CIDRs returns the descriptors that match addresses by prefixes, in the order of the file.
func (k *Key) CIDRs() []*Node {
	if k.cidrs == nil {
		return nil
	}
	return k.cidrs.nodes
}

// WithCIDR returns the descriptor one level below that has prefixes, and has the value of
// an entry as one of them or for its own, or nil.
func (n *Node) WithCIDR(e bucket.Entry) *Node {
	k := n.Key(e.Key)
	if k == nil || k.cidrs == nil {
		return nil
	}
	prefix, err := netip.ParsePrefix(FirstCIDR(e.Value))
	if err != nil {
		return nil
	}
	if found, ok := k.cidrs.table.Get(prefix); ok && (found.entry.Value == e.Value || prefix.String() == e.Value) {
		return found
	}
	return nil
}

// readsAddresses has the values of a key read as addresses.
func (k *Key) readsAddresses() {
	if k.cidrs == nil {
		k.cidrs = new(cidrs)
	}
}

// addCIDR adds a descriptor by its prefixes. It returns the index of a prefix that another
// descriptor of the level, or the descriptor itself, has already, and that one.
func (n *Node) addCIDR(below *Node) (at int, first *Node) {
	k := n.addKey(below.entry.Key)
	k.readsAddresses()
	for i, prefix := range below.networks.CIDR {
		if first := n.exact[bucket.Entry{Key: k.name, Value: prefix.String()}]; first != nil {
			return i, first
		}
		if first, ok := k.cidrs.table.Get(prefix); ok {
			return i, first
		}
		k.cidrs.table.Insert(prefix, below)
	}
	if first := n.exact[below.entry]; first != nil {
		return 0, first
	}
	k.cidrs.nodes = append(k.cidrs.nodes, below)
	return 0, nil
}

// keep reports whether all previous prefixes still exist.
func (c *cidrs) keep(before *cidrs) bool {
	if before == nil {
		return true
	}
	for prefix := range before.table.All() {
		if c == nil {
			return false
		}
		if _, ok := c.table.Get(prefix); !ok {
			return false
		}
	}
	return true
}

// MatchNetworks is Match for a domain with HasNetworks. It sets, for each entry whose value
// is counted as an address or its network, the text of that; networks has as many items as
// entries, all empty.
func (d *Domain) MatchNetworks(entries []bucket.Entry, networks []string) *Rule {
	n := d.root
	for i := range entries {
		if n, networks[i] = n.nextCounted(&entries[i]); n == nil {
			return nil
		}
	}
	return n.rule
}

// CIDROf returns the prefix by which an entry matches a descriptor one level below, or "".
func (n *Node) CIDROf(e *bucket.Entry) string {
	k := n.Key(e.Key)
	address, ok := network.Parse(e.Value)
	if k == nil || k.cidrs == nil || !ok {
		return ""
	}
	prefix, _, ok := k.cidrs.table.LookupPrefixLPM(address)
	if !ok {
		return ""
	}
	return prefix.String()
}

// HasNetworks reports whether a descriptor matches addresses, or counts networks.
func (d *Domain) HasNetworks() bool { return d.hasNetworks }

// NoteNetworks says that a descriptor of the domain has networks.
func (d *Domain) NoteNetworks() { d.hasNetworks = true }

// Counted returns entries with the networks by which they are counted in place of the
// addresses. They are the same if there are none.
func (d *Domain) Counted(entries []bucket.Entry) []bucket.Entry {
	if !d.hasNetworks {
		return entries
	}
	networks := make([]string, len(entries))
	d.MatchNetworks(entries, networks)
	counted := slices.Clone(entries)
	for i, text := range networks {
		if text != "" {
			counted[i].Value = text
		}
	}
	return counted
}
