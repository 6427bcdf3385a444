package assigntext

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// columns are the CSV columns of assignments, in the order in which they are written. An
// assignment has a row for its base, and one with until for each layer on top.
var columns = []string{"domain", "entries", "plan", "limits", "starts", "time_zone", "unlimited", "blocked", "until", "reason"}

// partColumns are the columns of parts, with the part that is removed from the base if its
// row leaves them empty. A block stays.
var partColumns = map[string][]adminv1.Part{
	"plan": {adminv1.Part_PART_PLAN}, "limits": {adminv1.Part_PART_NUMBERS},
	"starts": {adminv1.Part_PART_CALENDAR}, "time_zone": {adminv1.Part_PART_CALENDAR}, "unlimited": {adminv1.Part_PART_UNLIMITED}, "blocked": nil,
}

// Row is what a row of a file sets, in the base or until a moment, and the parts that it
// removes from the base before. A line of JSON may have layers on top too.
type Row struct {
	Line int
	*adminv1.Assignment
	remove []adminv1.Part
}

// Patch returns the change that makes the row.
func (r *Row) Patch() *adminv1.AssignmentPatch {
	return &adminv1.AssignmentPatch{Assignment: r.Assignment, Remove: r.remove, RemoveFromBase: true}
}

// RowError is a mistake in a file. Lines and columns count from 1, columns in bytes.
type RowError struct {
	Line, Column int
	Text         string
}

// Error implements error.
func (e RowError) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Text) }

// rowReader reads assignments one by one.
type rowReader interface {
	// Next returns the next row, or what is wrong with it. Its error, io.EOF at the
	// end, says that there are no more.
	Next() (Row, []RowError, error)
}

// readRows returns a reader of CSV, or of JSON lines if the text looks like them. domain
// applies to rows that name none.
func readRows(from io.Reader, domain string) (rowReader, error) {
	text := bufio.NewReader(from)
	if mark, _ := text.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = text.Discard(len(mark))
	}
	if first, _ := text.Peek(1); bytes.Equal(first, []byte("{")) {
		return newJSONRows(text, domain), nil
	}
	return newCSVRows(text, domain)
}

// csvRows reads CSV with a header.
type csvRows struct {
	csv    *csv.Reader
	domain string
	header []string
}

func newCSVRows(from io.Reader, domain string) (*csvRows, error) {
	r := &csvRows{csv: csv.NewReader(from), domain: domain}
	r.csv.FieldsPerRecord = -1    // next gives a better error
	r.csv.TrimLeadingSpace = true // of "api, tenant=acme"; a field between quotes keeps it
	header, err := r.csv.Read()
	var syntax *csv.ParseError
	allowed := "a header of the columns " + yamlfile.Commas(columns)
	switch {
	case errors.Is(err, io.EOF):
		return nil, RowError{Line: 1, Column: 1, Text: "found nothing; allowed: " + allowed + ", or JSON lines"}
	case errors.As(err, &syntax):
		return nil, RowError{Line: syntax.Line, Column: syntax.Column, Text: "found no CSV: " + syntax.Err.Error()}
	case err != nil:
		return nil, err
	}
	for i, name := range header {
		line, column := r.csv.FieldPos(i)
		name = strings.TrimSpace(name)
		if !slices.Contains(columns, name) || slices.Contains(r.header, name) {
			wrong := fmt.Sprintf("found the column %s; allowed: %s, each once", yamlfile.Quote(name), allowed)
			if strings.ContainsAny(name, ";\t") {
				wrong += ", parted by commas"
			}
			return nil, RowError{Line: line, Column: column, Text: wrong}
		}
		r.header = append(r.header, name)
	}
	if !slices.Contains(r.header, "entries") || domain == "" && !slices.Contains(r.header, "domain") {
		return nil, RowError{Line: 1, Column: 1, Text: "found a header without entries or domain; allowed: both, or --domain in place of the second"}
	}
	if !slices.ContainsFunc(r.header, func(name string) bool { _, isPart := partColumns[name]; return isPart }) {
		return nil, RowError{Line: 1, Column: 1, Text: "found a header without a part of assignments; allowed: one or more of plan, limits, starts, time_zone, unlimited and blocked"}
	}
	return r, nil
}

func (r *csvRows) Next() (Row, []RowError, error) {
	fields, err := r.csv.Read()
	var syntax *csv.ParseError
	switch {
	case errors.As(err, &syntax):
		e := RowError{Line: syntax.StartLine, Column: 1, Text: "found no CSV: " + syntax.Err.Error()}
		if syntax.Line == syntax.StartLine { // not a quote that is open until the end
			e.Column = syntax.Column
		}
		return Row{}, []RowError{e}, nil
	case err != nil:
		return Row{}, nil, err
	}
	line, _ := r.csv.FieldPos(0)
	found := Row{Line: line, Assignment: &adminv1.Assignment{Domain: r.domain}}
	if len(fields) != len(r.header) {
		return found, []RowError{{Line: line, Column: 1, Text: fmt.Sprintf("found %s; allowed: %d, as in the header", yamlfile.Plural(int64(len(fields)), "field"), len(r.header))}}, nil
	}
	var bad []RowError
	for i, field := range fields {
		if err := setColumn(found.Assignment, r.header[i], field); err != nil {
			line, column := r.csv.FieldPos(i)
			bad = append(bad, RowError{Line: line, Column: column, Text: r.header[i] + ": " + err.Error()})
		}
		found.remove = append(found.remove, partColumns[r.header[i]]...)
	}
	if found.Until != nil {
		found.remove = nil
	}
	if bad == nil {
		bad = r.checkRow(found)
	}
	return found, bad, nil
}

// checkRow returns the mistakes in an assignment with their columns.
func (r *csvRows) checkRow(found Row) []RowError {
	var bad []RowError
	for _, mistake := range mistakesOf(found) {
		where, _, _ := strings.Cut(mistake, ":")
		where, _, _ = strings.Cut(where, "[")
		if where == "numbers" {
			where = "limits"
		}
		e := RowError{Line: found.Line, Column: 1, Text: mistake}
		if i := slices.Index(r.header, strings.TrimPrefix(where, "calendar.")); i >= 0 {
			e.Line, e.Column = r.csv.FieldPos(i)
		}
		bad = append(bad, e)
	}
	return bad
}

// mistakesOf returns what is wrong with a row, each mistake preceded by its place.
func mistakesOf(r Row) []string {
	err := Check(r.Patch())
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// setColumn reads a field of CSV; an empty one says nothing.
func setColumn(a *adminv1.Assignment, column, field string) (err error) {
	if field == "" {
		return nil
	}
	switch column {
	case "domain":
		a.Domain = spelling.Unescape(field)
	case "entries":
		a.Entries, err = ParseEntries(field)
	case "plan":
		a.Plan = spelling.Unescape(field)
	case "limits":
		a.Numbers, err = parseNumbersList(field)
	case "starts":
		calendarOf(a).Starts = spelling.Unescape(field)
	case "time_zone":
		calendarOf(a).TimeZone = spelling.Unescape(field)
	case "unlimited":
		a.Unlimited, err = parseBool(field)
	case "blocked":
		a.Blocked, err = parseBool(field)
	case "until":
		var at time.Time
		if at, err = ParseMoment(field); err == nil {
			a.Until = timestamppb.New(at)
		}
	case "reason":
		a.Reason = spelling.Unescape(field)
	}
	return err
}

// calendarOf returns the calendar of an assignment, which it makes if there is none.
func calendarOf(a *adminv1.Assignment) *adminv1.AssignedCalendar {
	if a.Calendar == nil {
		a.Calendar = new(adminv1.AssignedCalendar)
	}
	return a.Calendar
}

func parseBool(field string) (bool, error) {
	switch field {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("found %s; allowed: true, false or nothing", yamlfile.Quote(field))
}

// jsonRows reads JSON lines, each an Assignment in protobuf JSON: its base except a block,
// or only a block, and layers on top.
type jsonRows struct {
	lines  *bufio.Scanner
	line   int
	domain string
}

// maxLine bounds a line of JSON in bytes; a valid one is far shorter.
const maxLine = 1 << 20

func newJSONRows(from io.Reader, domain string) *jsonRows {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	return &jsonRows{lines: lines, domain: domain}
}

// jsonColumn finds the column in an error of protojson.
var jsonColumn = regexp.MustCompile(`\(line 1:(\d+)\): `)

func (r *jsonRows) Next() (Row, []RowError, error) {
	for r.lines.Scan() {
		r.line++
		text := r.lines.Bytes()
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		found := Row{Line: r.line, Assignment: &adminv1.Assignment{}}
		if err := protojson.Unmarshal(text, found.Assignment); err != nil {
			text := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
			bad := RowError{Line: r.line, Column: 1, Text: "found no assignment: " + text}
			if m := jsonColumn.FindStringSubmatch(bad.Text); m != nil {
				bad.Column, _ = strconv.Atoi(m[1])
				bad.Text = strings.Replace(bad.Text, m[0], "", 1)
			}
			return found, []RowError{bad}, nil
		}
		if found.Domain == "" {
			found.Domain = r.domain
		}
		forget(found.Assignment)
		var bad []RowError
		if found.Until == nil && saysMore(found.Assignment) {
			found.remove = []adminv1.Part{adminv1.Part_PART_TERMS}
		}
		for _, mistake := range mistakesOf(found) {
			bad = append(bad, RowError{Line: r.line, Column: 1, Text: mistake})
		}
		return found, bad, nil
	}
	if err := r.lines.Err(); err != nil {
		return Row{}, nil, RowError{Line: r.line + 1, Column: 1, Text: err.Error()}
	}
	return Row{}, nil, io.EOF
}

// saysMore reports whether a layer says more than a block.
func saysMore(l layer) bool {
	return slices.ContainsFunc(partsOf(l), func(p part) bool { return p.name != "block" })
}

// forget removes the fields that the daemon sets.
func forget(a *adminv1.Assignment) {
	a.MadeBy, a.MadeAt, a.Etag = "", nil, ""
	for _, t := range a.GetTemporary() {
		t.MadeBy, t.MadeAt = "", nil
	}
}
