package access

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Gate knows who calls the admin API.
type Gate struct {
	// members is nil without a tokens file.
	members *LiveMembers
	// open is whether callers on this machine need no credentials.
	open     bool
	failures *failures
	now      func() time.Time
}

// Errors of Gate.Identify. None shows the credentials.
var (
	// ErrNoCredentials: nothing was shown, and something must be.
	ErrNoCredentials = errors.New("who calls is not known: send a token of admin.tokens_file as authorization: Bearer TOKEN")
	// ErrUnknown: the credentials are unknown.
	ErrUnknown = errors.New("the token is not one that the daemon knows (admin.tokens_file)")
	// ErrNoTokens: a token was shown, and there is no file that it could be in.
	ErrNoTokens = errors.New("the daemon knows no token: its setting admin.tokens_file is not set")
	// ErrTooMany: too many attempts have failed, so this one was not looked at.
	ErrTooMany = fmt.Errorf("too many attempts from this address have failed; the next is looked at in %d s", failureEvery/time.Second)
)

// NewGate returns a gate for the members of a tokens file, or nil members without one. If
// loopback, only this machine reaches the port; without a file, callers from it are then
// local viewers and need no credentials. now is the clock for the attempts of an address.
func NewGate(members *LiveMembers, loopback bool, now func() time.Time) *Gate {
	return &Gate{members: members, open: loopback && members == nil, failures: newFailures(), now: now}
}

// local is the viewer that stands for any caller on this machine.
var local = &Member{Name: "local", Role: Viewer, IsLocal: true}

// Identify says who shows credentials from an address. A certificate that the file does
// not name is a viewer's, since it was signed for callers of this port. An unknown token
// belongs to no one, whatever certificate comes with it.
func (g *Gate) Identify(address netip.Addr, shown *Credentials) (*Member, error) {
	switch {
	case shown.HasToken || shown.Unreadable:
		return g.ofToken(address, shown)
	case shown.HasCertificate:
		return g.ofCertificate(shown), nil
	case g.open && address.Unmap().IsLoopback():
		return local, nil
	}
	return nil, ErrNoCredentials
}

// IdentifyAgain is Identify for a caller who was identified by the same credentials
// before: it says who that is now. It does not count as an attempt, and attempts of
// others do not affect it.
func (g *Gate) IdentifyAgain(address netip.Addr, shown *Credentials) (*Member, error) {
	if !shown.HasToken {
		return g.Identify(address, shown)
	}
	if m := g.holderOf(shown); m != nil {
		return m, nil
	}
	return nil, g.unknown()
}

// unknown returns why a token belongs to no one.
func (g *Gate) unknown() error {
	if g.members == nil {
		return ErrNoTokens
	}
	return ErrUnknown
}

func (g *Gate) ofToken(address netip.Addr, shown *Credentials) (*Member, error) {
	now := g.now()
	if !g.failures.mayTry(address, now) {
		return nil, ErrTooMany
	}
	if m := g.holderOf(shown); m != nil {
		return m, nil
	}
	g.failures.add(address, now)
	return nil, g.unknown()
}

// holderOf returns the member with a token, or nil.
func (g *Gate) holderOf(shown *Credentials) *Member {
	if g.members == nil || !shown.HasToken || shown.Unreadable {
		return nil
	}
	return g.members.Value().holders.ofToken(&shown.Digest)
}

func (g *Gate) ofCertificate(shown *Credentials) *Member {
	if g.members != nil {
		if m := g.members.Value().holders.ofNames(shown.Names); m != nil {
			return m
		}
	}
	m := &Member{Name: "a certificate without a name", Role: Viewer}
	if len(shown.Names) > 0 {
		m.Name = shown.Names[0]
	}
	return m
}
