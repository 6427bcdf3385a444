// Package statsd sends counts to a statsd server, by the increments since they were
// last sent. It imports logthin.
package statsd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cactus/go-statsd-client/v5/statsd"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

const (
	// maxLine bounds a line and a datagram, in bytes: no usual network cuts it. Longer
	// names are not sent.
	maxLine = 1432
	// maxSegment bounds what is written to a stream at a time.
	maxSegment = 32 << 10
	// maxTime bounds the time that all counts take to be sent.
	maxTime  = 5 * time.Second
	logEvery = time.Minute
)

// Options say where counts go and what they are called.
type Options struct {
	// Network is udp or tcp, and Address host:port.
	Network, Address string
	// Prefix stands before all names, followed by a dot, unless it is empty.
	Prefix string
	// Tags are those of all counts. They become parts of names, as with lyft/gostats,
	// unless Dog is set.
	Tags map[string]string
	// Dog is whether tags stand beside names, as in DogStatsD.
	Dog bool
	// Rules change names. Only with Dog may they add tags.
	Rules []Rule
	Log   *slog.Logger
	Now   func() time.Time
}

// Count is a sum to be sent. It never falls.
type Count struct {
	Name  []byte
	Total uint64
	// Sent is how much of it was sent. It advances when the rest is sent.
	Sent *uint64
}

// Sender sends counts. It may not be used concurrently.
type Sender struct {
	o Options
	// suffix is what tags add to names.
	suffix       string
	tags         []statsd.Tag
	failed, long logthin.Thinner
}

// New returns a sender, which connects when it sends.
func New(o Options) *Sender {
	s := &Sender{o: o}
	for _, key := range slices.Sorted(maps.Keys(o.Tags)) {
		value := o.Tags[key]
		switch {
		case key == "" || value == "":
		case o.Dog:
			s.tags = append(s.tags, tagOf(key, value))
		default:
			s.suffix += ".__" + key + "=" + strings.NewReplacer(".", "_", ":", "_", "|", "_").Replace(value)
		}
	}
	return s
}

// Send sends what counts grew by since they were sent. What could not be sent is sent the
// next time; only what was written and may not have arrived is not written again. It ends
// within 5 s, or soon after ctx ends. Failures are logged, a line a minute.
func (s *Sender) Send(ctx context.Context, counts iter.Seq[Count]) {
	if err := s.send(ctx, counts); err != nil && ctx.Err() == nil {
		if unlogged, due := s.failed.Due(s.o.Now(), logEvery); due {
			s.o.Log.Warn("statsd: counts could not be sent; what was not written waits", "address", s.o.Address, "protocol", s.o.Network, "error", err, "unlogged_before", unlogged)
		}
	}
}

func (s *Sender) send(ctx context.Context, counts iter.Seq[Count]) (err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, s.o.Network, s.o.Address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	client, err := statsd.NewClientWithSender(newPackets(conn), s.o.Prefix, statsd.SuffixOctothorpe)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for c := range counts {
		n := c.Total - *c.Sent
		if n == 0 {
			continue
		}
		name, tags := s.spell(string(c.Name))
		err := client.Inc(name, int64(n), 1, tags...)
		if errors.Is(err, errLongLine) {
			s.logLong(c.Name)
			continue
		}
		*c.Sent = c.Total // also after an error: a part may have arrived, and counts once
		if err != nil {
			return err
		}
	}
	return nil
}

// packets writes lines to a connection, as many as fit at a time.
type packets struct {
	*bufio.Writer
	conn net.Conn
}

func newPackets(conn net.Conn) packets {
	size := maxSegment
	if conn.LocalAddr().Network() == "udp" {
		size = maxLine
	}
	return packets{bufio.NewWriterSize(conn, size), conn}
}

var errLongLine = fmt.Errorf("a line of more than %d bytes", maxLine)

// Send implements statsd.Sender.
func (p packets) Send(line []byte) (int, error) {
	if len(line) >= maxLine {
		return 0, errLongLine
	}
	if len(line) >= p.Available() {
		if err := p.Flush(); err != nil {
			return 0, err
		}
	}
	return p.Write(append(line, '\n'))
}

// Close implements statsd.Sender.
func (p packets) Close() error { return errors.Join(p.Flush(), p.conn.Close()) }

// spell returns a name as it is sent, and its tags.
func (s *Sender) spell(name string) (string, []statsd.Tag) {
	// Before rules, whose dots match no ends of lines and which may add tags on purpose.
	// Callers choose a part of a name, and some servers read tags from names, after a
	// comma (InfluxDB), a number sign (Librato), a semicolon (Graphite) or in brackets
	// (SignalFx).
	name = replace(name, ":|,#;[]")
	tags := s.tags
	if changed, more, ok := change(s.o.Rules, name); ok {
		name = changed
		if s.o.Dog {
			tags = slices.Concat(tags, more)
		}
	}
	return replace(name+s.suffix, ":|"), tags
}

// tagOf returns a valid tag. Its key ends at its first colon; its value may hold others.
func tagOf(key, value string) statsd.Tag { return statsd.Tag{replace(key, ",|"), replace(value, ",|")} }

// replace replaces these characters and all control characters, which would end a name, a
// tag or a line, by underscores.
func replace(text, characters string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(characters, r) {
			return '_'
		}
		return r
	}, text)
}

func (s *Sender) logLong(name []byte) {
	if unlogged, due := s.long.Due(s.o.Now(), logEvery); due {
		const shown = 80
		s.o.Log.Warn(fmt.Sprintf("statsd: a name makes %s, and is not sent", errLongLine), "name_begins", string(name[:min(len(name), shown)]), "unlogged_before", unlogged)
	}
}
