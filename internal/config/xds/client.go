package xds

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

const (
	// minPause and maxPause bound the time between two connections. It grows as long as
	// no response is accepted.
	minPause = 200 * time.Millisecond
	maxPause = 10 * time.Second
	// logEvery spaces repeated log lines.
	logEvery = time.Minute
	// silenceLogEvery spaces the lines about a server that has nothing to say, which may
	// be intended.
	silenceLogEvery = 10 * time.Minute
	// maxSaid bounds the error of a connection, in bytes.
	maxSaid = 1024
	// defaultSilence applies if Options do not say.
	defaultSilence = 15 * time.Second
)

// Options are the options of a Client.
type Options struct {
	// Address is the host:port of the server.
	Address string
	// NodeID and NodeMetadata identify the client. A server answers nodes that it knows,
	// and is silent to others.
	NodeID       string
	NodeMetadata map[string]string
	// Headers are sent with the stream; their names are in lower case.
	Headers map[string]string
	// TLS says how the connection is protected. Its CA is trusted besides the system's.
	TLS tlsfiles.Client
	// MaxBytes bounds the size of a response.
	MaxBytes int
	// CachePath, if set, is the file that keeps the last good configuration.
	CachePath string
	// Silence is how long a server may stay silent before that is logged; 0 means 15
	// seconds.
	Silence time.Duration
	// Live receives the rules. It was made by NewFedLive.
	Live *limitsfile.FedLive
	// Sparing, if set, calls the function that reads a large response.
	Sparing func(func())
	// Metrics registers the metrics of the client. Log may be nil.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Client follows the configuration of an xDS server. Its methods may be called
// concurrently; Run runs once.
type Client struct {
	options Options
	log     *slog.Logger
	tls     tlsConfig // nil without TLS
	pace    pace
	metrics *metrics

	// lost thins the log lines about connections, by their text; there are few texts.
	// toldLost is set if the last line about the connection says that there is none.
	lost              map[string]*logthin.Thinner
	toldLost          bool
	silent, notCached logthin.Thinner
	// misaddressed thins the log lines about responses that are not a configuration.
	misaddressed logthin.Thinner

	// answered is closed once a response was loaded or refused.
	answered     chan struct{}
	answeredOnce sync.Once

	// refused identifies the last configuration that was loaded; why is the reason for
	// its refusal, or nil. A server may send it again and again.
	refused [sha256.Size]byte
	why     error
	// cached is the configuration in the cache. It and the fields above, from pace on,
	// are used by New and then only by Run.
	cached [sha256.Size]byte

	mu     sync.Mutex
	status Status
}

// New returns a Client and loads the cached configuration. An error says which TLS file
// cannot be read.
func New(o Options) (*Client, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Silence == 0 {
		o.Silence = defaultSilence
	}
	tls, err := tlsfiles.ClientConfigBesideSystem(o.TLS, o.Log)
	if err != nil {
		return nil, err
	}
	c := &Client{
		options: o, log: o.Log.With("xds_server", o.Address), tls: tls, answered: make(chan struct{}),
		lost: make(map[string]*logthin.Thinner), toldLost: true,
	}
	c.status.Since = time.Now()
	c.metrics = newMetrics(o.Metrics, c)
	if o.CachePath != "" {
		c.loadCache()
	}
	return c, nil
}

// Answered is closed once the server's first configuration was loaded or refused.
func (c *Client) Answered() <-chan struct{} { return c.answered }

// Run follows the server until ctx ends.
func (c *Client) Run(ctx context.Context) {
	pause := minPause
	for {
		good, err := c.session(ctx)
		if ctx.Err() != nil {
			return
		}
		c.disconnected(err)
		if good {
			pause = minPause
		}
		pause = nextPause(pause)
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// nextPause returns the pause that follows another. Daemons that lost the same server
// must not come back together.
func nextPause(pause time.Duration) time.Duration {
	return min(minPause+rand.N(3*pause-minPause), maxPause)
}

// load puts a snapshot in force. It returns the reason if it is refused, or nil.
func (c *Client) load(s *snapshot) error {
	if c.isRefused(s) {
		return c.why // it would take as long as the first time
	}
	c.why = c.options.Live.Feed(s.digest, s.list())
	c.refused = s.digest
	return c.why
}

// isRefused reports whether a snapshot is the one that was just refused.
func (c *Client) isRefused(s *snapshot) bool { return c.why != nil && s.digest == c.refused }

// judge loads a snapshot and records the result.
func (c *Client) judge(s *snapshot, data []byte) error {
	again, rules := c.isRefused(s), c.rules()
	misaddressed := s.checkEnvelope()
	err := misaddressed
	if err == nil {
		err = c.load(s)
	}
	c.mu.Lock()
	if err != nil {
		c.status.Rejected = &Rejection{Version: s.version, At: time.Now(), Err: err}
	} else {
		c.status.Version, c.status.AcceptedAt = s.version, time.Now()
		c.status.Rejected, c.status.CachedAt = nil, time.Time{}
	}
	c.mu.Unlock()
	switch {
	case err == nil:
		c.metrics.accepted.Inc()
		c.log.Debug("xds: accepted", "version", s.version)
		c.tellEmptied(s, rules)
		c.saveCache(s, data)
	case misaddressed != nil:
		if leftOut, due := c.misaddressed.Due(time.Now(), logEvery); due {
			c.log.Warn("xds: a response is refused, and the server is told; nothing changes", "version", s.version, "error", err, "not_logged", leftOut)
		}
	case !again:
		c.log.Warn("xds: a configuration is refused, and the server is told", "version", s.version) // Live logs why
	}
	c.answeredOnce.Do(func() { close(c.answered) })
	return err
}

// rules returns how many rules are in force.
func (c *Client) rules() int {
	if rules := c.options.Live.Rules(); rules != nil {
		return rules.Count()
	}
	return 0
}

// tellEmptied counts and logs that a configuration removed all of the rules, of which
// there were so many before. That may be intended, or the server may have lost its own.
// Domains without a rule may remain.
func (c *Client) tellEmptied(s *snapshot, before int) {
	if before == 0 || c.rules() > 0 {
		return
	}
	c.metrics.emptied.Inc()
	c.log.Error("xds: the server sent a configuration without limits; nothing is limited now", "version", s.version, "rules_before", before)
}

// connected records that a stream is open.
func (c *Client) connected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Connected, c.status.Since = true, time.Now()
	if c.toldLost {
		c.toldLost = false
		c.log.Info("xds: connected", "node_id", c.options.NodeID)
	}
}

// disconnected records and logs why a stream ended, or could not start.
func (c *Client) disconnected(err error) {
	c.metrics.failures.Inc()
	hint := hintFor(err)
	if said := err.Error(); len(said) > maxSaid {
		err = errors.New(strings.ToValidUTF8(said[:maxSaid], "?") + "...") // the server chose it
	}
	c.mu.Lock()
	was := c.status.Connected
	if was {
		c.status.Connected, c.status.Silent, c.status.Since = false, false, time.Now()
	}
	c.status.LastError, c.status.Hint, c.status.FailedAt = err, hint, time.Now()
	inForce := c.options.Live.Rules() != nil
	c.mu.Unlock()
	text := "xds: the server cannot be reached"
	if was {
		text = "xds: the stream ended"
	}
	if hint != "" {
		text += ": " + hint
	}
	if inForce {
		text += "; the limits in force stay"
	} else {
		text += "; no limits are loaded yet"
	}
	if c.lost[text] == nil {
		c.lost[text] = &logthin.Thinner{}
	}
	if leftOut, due := c.lost[text].Due(time.Now(), logEvery); due {
		c.toldLost = true
		c.log.Warn(text, "error", err, "not_logged", leftOut)
	}
}

// tellSilence logs that the server has said nothing on a stream.
func (c *Client) tellSilence() {
	c.mu.Lock()
	c.status.Silent = true
	c.mu.Unlock()
	if _, due := c.silent.Due(time.Now(), silenceLogEvery); due {
		c.log.Warn("xds: the server is connected and has sent no configuration; it may have none yet, or none for this node id",
			"node_id", c.options.NodeID, "after", c.options.Silence)
	}
}

// heard records that the server said something.
func (c *Client) heard() {
	c.mu.Lock()
	c.status.Silent = false
	c.status.LastError, c.status.Hint, c.status.FailedAt = nil, "", time.Time{}
	c.mu.Unlock()
	c.silent.Reset()
}

var errEndOfStream = errors.New("the server ended the stream")
