package replay

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Table returns the format of comma-separated values (RFC 4180, each row on a line): a
// row is a request with one descriptor. The columns time, domain and cost are what their
// names say; the others are entries, in order, and an empty cell is none. domain is for a
// table without that column.
func Table(domain string) Format { return &table{domain: domain, time: -1, of: -1, cost: -1} }

type table struct {
	names, cells   []string
	domain         string
	time, of, cost int // columns, or -1
}

// split reads the cells of a row.
func (t *table) split(line []byte) (err error) {
	t.cells, err = csv.NewReader(bytes.NewReader(line)).Read()
	if syntax := (*csv.ParseError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("column %d: found %v; allowed: a row of comma-separated values on a line", syntax.Column, syntax.Err)
	}
	if n := len(t.names); err == nil && n > 0 && len(t.cells) != n {
		return fmt.Errorf("found %d cells; allowed: %d, as in the first row", len(t.cells), n)
	}
	return err
}

func (t *table) begin(line []byte) (bool, error) {
	if err := t.split(bytes.TrimPrefix(line, []byte("\ufeff"))); err != nil {
		return false, err
	}
	for i, name := range t.cells {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(t.names, name) {
			return false, fmt.Errorf("column %d: found the name %q; allowed: one for each column", i+1, short(name))
		}
		t.names = append(t.names, name)
	}
	t.time, t.of, t.cost = slices.Index(t.names, "time"), slices.Index(t.names, "domain"), slices.Index(t.names, "cost")
	switch {
	case t.time < 0:
		return false, fmt.Errorf("found the columns %s; allowed: a column time among them", short(strings.Join(t.names, ",")))
	case t.of < 0 && t.domain == "":
		return false, errors.New("found no column domain; allowed: one, or --domain NAME")
	}
	return true, nil
}

func (t *table) head(line []byte) (h decisionlog.Head, err error) {
	if err = t.split(line); err == nil {
		h.At, err = parseMoment(t.cells[t.time])
	}
	return h, err
}

func (t *table) read(line []byte, to *Record) (err error) {
	if err = t.split(line); err != nil {
		return err
	}
	d := decisionlog.Descriptor{Cost: 1}
	to.Line, to.Recorded = decisionlog.Line{Domain: t.domain}, false
	for i, cell := range t.cells {
		switch {
		case i == t.time:
			to.At, err = parseMoment(cell)
		case i == t.of:
			if cell != "" {
				to.Domain = cell
			}
		case i == t.cost:
			if d.Cost, err = strconv.ParseInt(cell, 10, 64); err != nil || d.Cost > bucket.MaxRequests || d.Cost < -bucket.MaxRequests {
				err = fmt.Errorf("cost: found %q; allowed: a whole number of at most %d, negative for a refund", short(cell), int64(bucket.MaxRequests))
			}
		case cell != "":
			d.Entries = append(d.Entries, bucket.Entry{Key: t.names[i], Value: cell})
		}
		if err != nil {
			return err
		}
	}
	if to.Domain == "" {
		return errors.New("domain: found none; allowed: the name of one, or --domain NAME")
	}
	to.Descriptors = append(to.Descriptors, d)
	return nil
}
