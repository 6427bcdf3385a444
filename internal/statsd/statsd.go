// Package statsd sends counts to a statsd server, by the increments since they were
// last sent. It imports logthin.
package statsd

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

const (
	// maxDatagram is a datagram that no usual network cuts, in bytes.
	maxDatagram = 1432
	// maxSegment bounds what is written to a stream at a time.
	maxSegment = 32 << 10
	// maxLine bounds a line, in bytes. Longer names are not sent.
	maxLine = maxDatagram
	// patience bounds the time to connect, and that of each write.
	patience = 1500 * time.Millisecond
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
	// behind is what tags add to the end of a name, or of a line.
	behind string
	tags   []string
	max    int
	// packet has the lines that are written together, and waiting their counts.
	packet  []byte
	waiting []Count
	line    []byte
	failed  logthin.Thinner
	long    logthin.Thinner
}

// New returns a sender, which connects when it sends.
func New(o Options) *Sender {
	s := &Sender{o: o, max: maxDatagram}
	if o.Network != "udp" {
		s.max = maxSegment
	}
	for _, key := range slices.Sorted(maps.Keys(o.Tags)) {
		value := o.Tags[key]
		switch {
		case key == "" || value == "":
		case o.Dog:
			s.tags = append(s.tags, key+":"+value)
		default:
			s.behind += ".__" + key + "=" + strings.NewReplacer(".", "_", ":", "_", "|", "_").Replace(value)
		}
	}
	return s
}

// Send sends what counts grew by since they were sent. What could not be sent is sent the
// next time; only what was written and may not have arrived is not written again. It ends
// within 8 s, or soon after ctx ends. Failures are logged, a line a minute.
func (s *Sender) Send(ctx context.Context, counts iter.Seq[Count]) {
	if err := s.send(ctx, counts); err != nil && ctx.Err() == nil {
		if unlogged, due := s.failed.Due(s.o.Now(), logEvery); due {
			s.o.Log.Warn("statsd: counts could not be sent; what was not written waits", "address", s.o.Address, "protocol", s.o.Network, "error", err, "unlogged_before", unlogged)
		}
	}
}

func (s *Sender) send(ctx context.Context, counts iter.Seq[Count]) (err error) {
	s.packet, s.waiting = s.packet[:0], s.waiting[:0]
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, s.o.Network, s.o.Address)
	if err != nil {
		return err
	}
	defer func() {
		if closed := conn.Close(); err == nil {
			err = closed
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	end := time.Now().Add(maxTime)
	for c := range counts {
		n := c.Total - *c.Sent
		if n == 0 {
			continue
		}
		s.spell(c.Name, n)
		if len(s.line) > maxLine {
			s.tellLong(c.Name)
			continue
		}
		if len(s.packet)+len(s.line) > s.max {
			if err := s.write(conn, end); err != nil {
				return err
			}
		}
		s.packet, s.waiting = append(s.packet, s.line...), append(s.waiting, Count{Total: c.Total, Sent: c.Sent})
	}
	return s.write(conn, end)
}

// errSlow: a server that reads slowly gets the rest the next time.
var errSlow = fmt.Errorf("the server did not read all counts within %s", maxTime)

// write writes the packet.
func (s *Sender) write(conn net.Conn, end time.Time) error {
	if len(s.packet) == 0 {
		return nil
	}
	now := time.Now()
	if now.After(end) {
		return errSlow
	}
	if err := conn.SetWriteDeadline(now.Add(patience)); err != nil {
		return err
	}
	_, err := conn.Write(s.packet)
	for _, c := range s.waiting {
		*c.Sent = c.Total // also after an error: a part may have arrived, and counts once
	}
	s.packet, s.waiting = s.packet[:0], s.waiting[:0]
	return err
}

// spell makes the line of a name.
func (s *Sender) spell(name []byte, n uint64) {
	s.line = append(s.line[:0], name...)
	clean(s.line)     // before rules, whose dots match no ends of lines
	cleanTags(s.line) // before rules and tags, which may have some on purpose
	text, tags := string(s.line), s.tags
	if changed, more, ok := change(s.o.Rules, text); ok {
		text = changed
		if s.o.Dog {
			tags = slices.Concat(tags, more)
		}
	}
	s.line = s.line[:0]
	if s.o.Prefix != "" {
		s.line = append(append(s.line, s.o.Prefix...), '.')
	}
	s.line = append(append(s.line, text...), s.behind...)
	clean(s.line)
	s.line = append(s.line, ':')
	s.line = strconv.AppendUint(s.line, n, 10)
	s.line = append(s.line, "|c"...)
	for i, tag := range tags {
		between := byte(',')
		if i == 0 {
			s.line, between = append(s.line, '|'), '#'
		}
		s.line = append(s.line, between)
		s.line = append(s.line, tag...)
		cleanTag(s.line[len(s.line)-len(tag):])
	}
	s.line = append(s.line, '\n')
}

// clean makes a text, part of which callers may choose, a valid name: what would end a
// name or a line becomes an underscore.
func clean(name []byte) {
	for i, c := range name {
		if c < ' ' || c == 0x7f || c == ':' || c == '|' {
			name[i] = '_'
		}
	}
}

// cleanTags removes tags from a name, part of which callers may choose: some servers read
// them from names, after a comma (InfluxDB), a number sign (Librato), a semicolon
// (Graphite) or in brackets (SignalFx).
func cleanTags(name []byte) {
	for i, c := range name {
		if c == ',' || c == '#' || c == ';' || c == '[' || c == ']' {
			name[i] = '_'
		}
	}
}

// cleanTag is clean for a tag. Its key ends at its first colon; its value may hold
// others.
func cleanTag(tag []byte) {
	for i, c := range tag {
		if c < ' ' || c == 0x7f || c == ',' || c == '|' {
			tag[i] = '_'
		}
	}
}

func (s *Sender) tellLong(name []byte) {
	if unlogged, due := s.long.Due(s.o.Now(), logEvery); due {
		const shown = 80
		s.o.Log.Warn(fmt.Sprintf("statsd: a name makes a line of more than %d bytes, and is not sent", maxLine), "name_begins", string(name[:min(len(name), shown)]), "unlogged_before", unlogged)
	}
}
