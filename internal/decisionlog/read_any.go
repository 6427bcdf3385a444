package decisionlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// jsonLine has the fields of a line in any order and spelling.
type jsonLine struct {
	V           *int64           `json:"v"`
	Kind        string           `json:"kind"`
	Time        *string          `json:"time"`
	Seq         uint32           `json:"seq"`
	API         string           `json:"api"`
	Limits      string           `json:"limits"`
	Domain      string           `json:"domain"`
	Result      string           `json:"result"`
	Code        string           `json:"code"`
	Degraded    bool             `json:"degraded"`
	TraceID     string           `json:"trace_id"`
	Lossy       bool             `json:"lossy"`
	Descriptors []jsonDescriptor `json:"descriptors"`
	Settings    *jsonSettings    `json:"settings"`
	Files       []jsonFile       `json:"files"`
}

type jsonSettings struct {
	ShadowMode   bool   `json:"shadow_mode"`
	QuotaMode    bool   `json:"quota_mode"`
	Lenient      bool   `json:"lenient"`
	MergeDomains bool   `json:"merge_domains"`
	Unmatched    string `json:"unmatched"`
	MaxClockSkew int64  `json:"max_clock_skew_us"`
}

type jsonDescriptor struct {
	Entries   [][]string  `json:"entries"`
	Rule      string      `json:"rule"`
	Plan      string      `json:"plan"`
	Unlimited bool        `json:"unlimited"`
	Cost      int64       `json:"cost"`
	Reports   bool        `json:"reports"`
	Doubtful  bool        `json:"doubtful"`
	Result    string      `json:"result"`
	Refusal   string      `json:"refusal"`
	Limits    []jsonLimit `json:"limits"`
}

type jsonLimit struct {
	Name       string       `json:"name"`
	Result     string       `json:"result"`
	At         int64        `json:"at"`
	Seq        uint32       `json:"seq"`
	Remaining  int64        `json:"remaining"`
	RetryAfter int64        `json:"retry_after_us"`
	ResetAfter int64        `json:"reset_after_us"`
	Degraded   bool         `json:"degraded"`
	Remembered bool         `json:"remembered"`
	Numbers    *jsonNumbers `json:"numbers"`
	TakenAt    int64        `json:"taken_at"`
}

type jsonNumbers struct {
	Algorithm string `json:"algorithm"`
	Requests  int64  `json:"requests"`
	Period    int64  `json:"period_us"`
	Burst     int64  `json:"burst"`
	Assigned  bool   `json:"assigned"`
}

type jsonFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// readAny reads a line in any spelling.
func (l *Line) readAny(line []byte) error {
	var m jsonLine
	if err := json.Unmarshal(line, &m); err != nil {
		return jsonError(line, err)
	}
	switch {
	case m.V == nil:
		return &LineError{"v", "none", "the version of a line of a decision log, 1"}
	case *m.V < 1 || *m.V > Version:
		return &LineError{"v", strconv.FormatInt(*m.V, 10), "1; a newer ratelimitd wrote this log"}
	case m.Time == nil:
		return &LineError{"time", "none", allowedTime}
	}
	kind := slices.Index(kindWords[:], m.Kind)
	if kind < 0 {
		return &LineError{"kind", strconv.Quote(m.Kind), "none, limits or give_back"}
	}
	at, err := time.Parse(time.RFC3339Nano, *m.Time)
	if err != nil || !isMoment(at.UnixMicro()) || at.Year() > 9999 || at.Year() < 1970 {
		return &LineError{"time", shortQuote(*m.Time), allowedTime}
	}
	l.Kind, l.At, l.Seq = Kind(kind), at.UnixMicro(), m.Seq
	l.API, l.Limits, l.Domain, l.Code = m.API, m.Limits, m.Domain, m.Code
	l.Degraded, l.TraceID, l.Lossy = m.Degraded, m.TraceID, m.Lossy
	if l.Kind != Loaded || m.Result != "" {
		if l.Result, err = resultOf(m.Result, "result", len(resultWords)); err != nil {
			return err
		}
	}
	for i := range m.Descriptors {
		d, err := m.Descriptors[i].descriptor(fmt.Sprintf("descriptors[%d]", i), l.descriptorResults())
		if err != nil {
			return err
		}
		l.Descriptors = append(l.Descriptors, d)
	}
	for _, f := range m.Files {
		l.Files = append(l.Files, File(f))
	}
	l.Settings, err = m.Settings.settings()
	return err
}

// settings returns the settings of a line that says them, or nil.
func (m *jsonSettings) settings() (*Settings, error) {
	switch {
	case m == nil:
		return nil, nil
	case m.Unmatched != "" && m.Unmatched != "allow" && m.Unmatched != "deny":
		return nil, &LineError{"settings.unmatched", shortQuote(m.Unmatched), "allow or deny"}
	case m.MaxClockSkew < 0 || m.MaxClockSkew > maxMicros:
		return nil, &LineError{"settings.max_clock_skew_us", strconv.FormatInt(m.MaxClockSkew, 10), fmt.Sprintf("0 to %d", maxMicros)}
	}
	return &Settings{
		ShadowMode: m.ShadowMode, QuotaMode: m.QuotaMode, Lenient: m.Lenient, MergeDomains: m.MergeDomains,
		DenyUnmatched: m.Unmatched == "deny", MaxClockSkew: time.Duration(m.MaxClockSkew) * time.Microsecond,
	}, nil
}

const allowedTime = "a time from 1970 to 2112 such as 2026-11-23T00:00:00.000001Z"

// jsonError words an error of encoding/json.
func jsonError(line []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	const allowed = "an object of JSON on each line, as docs/decisions.md says"
	switch {
	case errors.As(err, &syntax) && int(syntax.Offset) >= len(line):
		return &LineError{"", fmt.Sprintf("a line that ends within its JSON, after %d bytes", len(line)), allowed}
	case errors.As(err, &syntax):
		return &LineError{fmt.Sprintf("byte %d", syntax.Offset), syntax.Error(), allowed}
	case errors.As(err, &kind):
		return &LineError{kind.Field, "JSON of the kind " + kind.Value, "a value that fits " + kind.Type.String()}
	}
	return &LineError{"", err.Error(), allowed}
}

func shortQuote(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.Quote(s[:most]) + " and more"
	}
	return strconv.Quote(s)
}

func resultOf(word, field string, n int) (Result, error) {
	if i := slices.Index(resultWords[:n], word); i >= 0 {
		return Result(i), nil
	}
	return 0, &LineError{field, shortQuote(word), fmt.Sprint(resultWords[:n])}
}

func (m *jsonDescriptor) descriptor(field string, results int) (d Descriptor, err error) {
	d = Descriptor{Rule: m.Rule, Plan: m.Plan, Unlimited: m.Unlimited, Cost: m.Cost, Reports: m.Reports, Doubtful: m.Doubtful, Refusal: m.Refusal}
	if d.Result, err = resultOf(m.Result, field+".result", results); err != nil {
		return d, err
	}
	for i, e := range m.Entries {
		if len(e) != 2 {
			return d, &LineError{fmt.Sprintf("%s.entries[%d]", field, i), fmt.Sprintf("%d texts", len(e)), "two, a key and a value"}
		}
		d.Entries = append(d.Entries, bucket.Entry{Key: e[0], Value: e[1]})
	}
	for i := range m.Limits {
		m := &m.Limits[i]
		l := Limit{Name: m.Name, Result: m.Result, At: m.At, Seq: m.Seq, Remaining: m.Remaining, Degraded: m.Degraded, Remembered: m.Remembered, TakenAt: m.TakenAt}
		at := fmt.Sprintf("%s.limits[%d]", field, i)
		if !l.setSpans(m.RetryAfter, m.ResetAfter) {
			return d, &LineError{at, "a number out of range", fmt.Sprintf("at and taken_at 0 to %d, retry_after_us -1 to %d, reset_after_us 0 to that", int64(maxMoment), maxMicros)}
		}
		if n := m.Numbers; n != nil {
			if n.Period < 0 || n.Period > maxMicros {
				return d, &LineError{at + ".numbers.period_us", strconv.FormatInt(n.Period, 10), fmt.Sprintf("0 to %d", maxMicros)}
			}
			l.Numbers = &Numbers{n.Algorithm, n.Requests, n.Burst, time.Duration(n.Period) * time.Microsecond, n.Assigned}
		}
		d.Limits = append(d.Limits, l)
	}
	return d, nil
}
