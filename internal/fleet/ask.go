package fleet

import (
	"cmp"
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

//go:embed ask.lua
var askSource string

const (
	// MaxAnswerBytes bounds a question, and an answer.
	MaxAnswerBytes = 256 << 10
	// answersWithin is how long a question waits for answers.
	answersWithin = time.Second

	// questionsLive is how long the stream lives, and answersLive how long an answer that
	// is not fetched: the asker is gone by then.
	questionsLive = time.Minute
	answersLive   = 5 * time.Second
	// answersEach is how many questions a daemon answers per second; it skips any more.
	answersEach = 5
	// maxRead is how many questions it reads at once.
	maxRead = 16
	// retryEvery is the pause after a failure.
	retryEvery = 200 * time.Millisecond
)

// LineOptions are the options of a Line.
type LineOptions struct {
	// ID is the ID of this daemon in the register.
	ID string
	// Daemons returns the IDs of the daemons in the register.
	Daemons func(context.Context) ([]string, error)
	// Answer answers the questions of others, one at a time; nil means that this daemon
	// has no answer, and the asker learns that.
	Answer func(question []byte) []byte
	// Log gets a line when Redis refuses to let questions be heard; nil means no log.
	Log *slog.Logger
	// Clock spaces answers and log lines; nil means this machine's.
	Clock func() time.Time
}

// Line lets a daemon ask all others of the register something, through Redis, which is all
// that they share. A question goes into a short stream to which every daemon listens. Each
// writes its answer under a key of its own, which expires. The asker polls the keys until
// all are there, for at most a second, and names the daemons that did not answer.
type Line struct {
	redis *redisconn.Conn
	o     LineOptions
	// isListening says that questions asked from now on are heard.
	isListening  atomic.Bool
	failureLines logthin.Thinner

	// Only Run uses the fields below.

	second   int64 // in which answered were answered
	answered int
}

// NewLine returns a line on the servers that conn reaches. conn belongs to the caller, who
// closes it after Run has ended.
func NewLine(conn *redisconn.Conn, o LineOptions) *Line {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Line{redis: conn, o: o}
}

func (l *Line) questions() string { return l.redis.Prefix() + "{~ask}~questions" }

// answerKey is the key of a daemon's answer to a question.
func (l *Line) answerKey(question, daemon string) string {
	return l.redis.Prefix() + "{~ask}~answer:" + question + ":" + daemon
}

// Ask asks all other daemons. It calls take with each answer as it arrives, one at a
// time, and returns the IDs of those that have none or did not give it in time. Its error
// says that they could not be asked.
func (l *Line) Ask(ctx context.Context, question []byte, take func(daemon string, answer []byte)) (pending []string, _ error) {
	if len(question) > MaxAnswerBytes {
		return nil, fmt.Errorf("a question of %d bytes, where %d are allowed", len(question), MaxAnswerBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	pending, err := l.o.Daemons(ctx)
	if err != nil {
		return nil, fmt.Errorf("the register of daemons does not answer: %w", err)
	}
	pending = slices.DeleteFunc(pending, func(id string) bool { return id == l.o.ID })
	if len(pending) == 0 {
		return nil, nil
	}
	id, err := l.redis.Eval(ctx, askSource, []string{l.questions()}, l.o.ID, question, questionsLive.Milliseconds()).Text()
	if err != nil {
		l.redis.ReloadAfter(ctx, err)
		return nil, fmt.Errorf("redis: %w", err)
	}
	var silent []string
	// The pause grows, so that nearby daemons are not waited for long and many do not
	// flood Redis.
	for pause := time.Millisecond; len(pending) > 0; pause = min(2*pause, 20*time.Millisecond) {
		select {
		case <-ctx.Done():
			return append(pending, silent...), nil
		case <-time.After(pause):
		}
		var later []string
		for some := range slices.Chunk(pending, maxFetch) {
			given := l.fetch(ctx, id, some, func(daemon string, answer []byte) {
				if len(answer) == 0 {
					silent = append(silent, daemon)
				} else {
					take(daemon, answer)
				}
			})
			for i, daemon := range some {
				if !given[i] {
					later = append(later, daemon)
				}
			}
		}
		pending = later
	}
	return silent, nil
}

const (
	// isAnswer begins each answer, to distinguish an empty one from none at all.
	isAnswer = '='
	// maxFetch is how many daemons' answers are read at once, in one round trip.
	maxFetch = 64
)

// fetch calls take with the available answers of daemons, and removes them. For a daemon
// that has no answer to give, take gets an empty one. given says whose were available.
func (l *Line) fetch(ctx context.Context, question string, daemons []string, take func(daemon string, answer []byte)) (given []bool) {
	given = make([]bool, len(daemons))
	texts := make([]*redis.StringCmd, len(daemons))
	pipe := l.redis.Pipeline()
	for i, daemon := range daemons {
		// One byte more than an answer may have: someone else may have written more.
		texts[i] = pipe.GetRange(ctx, l.answerKey(question, daemon), 0, 1+MaxAnswerBytes)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error; it is tried again until the time is over
	var read []string
	for i, text := range texts {
		answer, err := text.Bytes()
		if err != nil || len(answer) == 0 {
			continue
		}
		given[i], read = true, append(read, l.answerKey(question, daemons[i]))
		if answer[0] != isAnswer || len(answer) > 1+MaxAnswerBytes {
			answer = answer[:1]
		}
		take(daemons[i], answer[1:])
	}
	if len(read) > 0 {
		_ = l.redis.Del(ctx, read...).Err() // otherwise they expire
	}
	return given
}

// Run answers questions until ctx ends, and then returns within about a second.
func (l *Line) Run(ctx context.Context) {
	tail := redisconn.Tail{Conn: l.redis, Key: l.questions(), Max: maxRead}
	for ctx.Err() == nil {
		questions, err := tail.Next(ctx)
		l.isListening.Store(err == nil)
		if err != nil {
			l.logFailure(ctx, err)
			select {
			case <-ctx.Done():
			case <-time.After(retryEvery):
			}
			continue
		}
		for _, m := range questions {
			l.reply(ctx, m)
		}
	}
}

// reply answers a question.
func (l *Line) reply(ctx context.Context, m redis.XMessage) {
	from, _ := m.Values["from"].(string)
	question, _ := m.Values["question"].(string)
	if from == l.o.ID || len(question) > MaxAnswerBytes || !l.mayAnswer() {
		return
	}
	answer := l.o.Answer([]byte(question))
	if len(answer) > MaxAnswerBytes {
		answer = nil
	}
	whole, cancel := context.WithTimeout(ctx, l.redis.Timeout())
	defer cancel()
	if err := l.redis.Set(whole, l.answerKey(m.ID, l.o.ID), append([]byte{isAnswer}, answer...), answersLive).Err(); err != nil {
		l.logFailure(ctx, err)
	}
}

// mayAnswer reports whether there are few enough answers in this second.
func (l *Line) mayAnswer() bool {
	if now := l.o.Clock().Unix(); now != l.second {
		l.second, l.answered = now, 0
	}
	l.answered++
	return l.answered <= answersEach
}

// logFailure logs why Redis could not be asked, unless ctx has ended because the daemon
// stops.
func (l *Line) logFailure(ctx context.Context, err error) {
	l.redis.ReloadAfter(ctx, err)
	if ctx.Err() != nil {
		return
	}
	// Code that needs Redis more reports that it does not answer.
	level := slog.LevelDebug
	if err = l.redis.Explain(redisconn.AnyNode, err); errors.Is(err, redisconn.ErrRefused) {
		level = slog.LevelWarn
	}
	if _, due := l.failureLines.Due(l.o.Clock(), logEvery); due {
		l.o.Log.Log(ctx, level, "redis: questions of other daemons cannot be heard; ratelimitd top lacks what this one counted", "error", err)
	}
}
