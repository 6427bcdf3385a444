package redislog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// changeID is the ID of a record, and the ETag of the version that it made. Zero is before
// all.
type changeID struct{ ms, seq uint64 }

func parseID(text string) (changeID, error) {
	ms, seq, _ := strings.Cut(text, "-")
	m, err1 := strconv.ParseUint(ms, 10, 64)
	n, err2 := strconv.ParseUint(seq, 10, 64)
	if err := cmp.Or(err1, err2); err != nil {
		return changeID{}, fmt.Errorf("%.100q is not the ID of a record", text)
	}
	return changeID{m, n}, nil
}

func (i changeID) String() string {
	return strconv.FormatUint(i.ms, 10) + "-" + strconv.FormatUint(i.seq, 10)
}

func (i changeID) compare(o changeID) int {
	return cmp.Or(cmp.Compare(i.ms, o.ms), cmp.Compare(i.seq, o.seq))
}

// micros is the ID's time in microseconds since the Unix epoch.
func (i changeID) micros() int64 { return int64(i.ms) * 1000 }

// versionOf returns the ETag of an assignment in the table.
func versionOf(a *assign.Assignment) changeID {
	id, _ := parseID(a.ETag)
	return id
}

// entry is a record as Redis has it: see append.lua.
type entry struct {
	id, previous changeID
	record       assign.Record
	keys         []string // of the states that were reset
}

// decodeEntry reads a record. If it fails on the record itself, id and previous are valid.
func decodeEntry(m redis.XMessage) (e entry, err error) {
	field := func(name string) []byte { text, _ := m.Values[name].(string); return []byte(text) }
	if e.id, err = parseID(m.ID); err != nil {
		return e, err
	}
	if e.previous, err = parseID(string(field("p"))); err != nil {
		return e, err
	}
	if e.record, err = assign.DecodeRecord(field("r"), m.ID, e.id.micros()); err == nil && len(field("keys")) > 0 {
		err = json.Unmarshal(field("keys"), &e.keys)
	}
	return e, err
}

// encodeValue returns an assignment as the hash has it.
func encodeValue(a *assign.Assignment) string { return a.ETag + " " + string(assign.Encode(a)) }

// decodeValue reads what encodeValue wrote. If it fails, it still returns the ETag.
func decodeValue(value string) (a *assign.Assignment, etag string, _ error) {
	etag, body, _ := strings.Cut(value, " ")
	id, err := parseID(etag)
	if err != nil {
		return nil, etag, err
	}
	if a, err = assign.Decode([]byte(body)); err != nil {
		return nil, etag, err
	}
	a.Stamp(etag, id.micros())
	return a, etag, nil
}
