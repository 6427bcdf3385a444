package main

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

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// columns are those of assignments in CSV, in the order in which they are written.
var columns = []string{"domain", "entries", "plan", "limits", "unlimited", "blocked", "blocked_until", "until", "reason"}

// row is an assignment of a file.
type row struct {
	line int
	*adminv1.Assignment
}

// rowError is a mistake in a file. Lines and columns count from 1, columns in bytes.
type rowError struct {
	line, column int
	text         string
}

// Error implements error.
func (e rowError) Error() string { return fmt.Sprintf("%d:%d: %s", e.line, e.column, e.text) }

// rowReader reads assignments one by one.
type rowReader interface {
	// next returns the next row, or what is wrong with it. Its error, io.EOF at the
	// end, says that there are no more.
	next() (row, []rowError, error)
}

// readRows returns a reader of CSV, or of JSON lines if the text begins so. domain is
// that of rows that name none.
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
	from   *rowBytes
	line   int // of the last row that was read
	domain string
	header []string
}

func newCSVRows(from io.Reader, domain string) (*csvRows, error) {
	bounded := &rowBytes{Reader: from, left: longestLine}
	r := &csvRows{csv: csv.NewReader(bounded), from: bounded, line: 1, domain: domain}
	r.csv.FieldsPerRecord = -1    // which next tells better
	r.csv.TrimLeadingSpace = true // of "api, tenant=acme"; a field between quotes keeps it
	header, err := r.csv.Read()
	var syntax *csv.ParseError
	allowed := "a header of the columns " + yamlfile.Commas(columns)
	switch {
	case errors.Is(err, io.EOF):
		return nil, rowError{1, 1, "found nothing; allowed: " + allowed + ", or JSON lines"}
	case errors.As(err, &syntax):
		return nil, rowError{syntax.Line, syntax.Column, "found no CSV: " + syntax.Err.Error()}
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
			return nil, rowError{line, column, wrong}
		}
		r.header = append(r.header, name)
	}
	if !slices.Contains(r.header, "entries") || domain == "" && !slices.Contains(r.header, "domain") {
		return nil, rowError{1, 1, "found a header without entries or domain; allowed: both, or --domain in place of the second"}
	}
	return r, nil
}

// rowBytes reads no more than longestLine bytes at a time without being asked to go
// on: a quote that is not closed would have all that follows be one field.
type rowBytes struct {
	io.Reader
	left int
}

var errLongRow = fmt.Errorf("found a row of more than %d bytes, perhaps for a quote that is not closed", longestLine)

// Read implements io.Reader.
func (r *rowBytes) Read(b []byte) (int, error) {
	if r.left <= 0 {
		return 0, errLongRow
	}
	n, err := r.Reader.Read(b)
	r.left -= n
	return n, err
}

func (r *csvRows) next() (row, []rowError, error) {
	r.from.left = longestLine
	fields, err := r.csv.Read()
	var syntax *csv.ParseError
	switch {
	case errors.Is(err, errLongRow):
		return row{}, nil, rowError{r.line + 1, 1, err.Error()}
	case errors.As(err, &syntax):
		return row{}, []rowError{{syntax.Line, syntax.Column, "found no CSV: " + syntax.Err.Error()}}, nil
	case err != nil:
		return row{}, nil, err
	}
	line, _ := r.csv.FieldPos(0)
	r.line = line
	found := row{line, &adminv1.Assignment{Domain: r.domain}}
	if len(fields) != len(r.header) {
		return found, []rowError{{line, 1, fmt.Sprintf("found %s; allowed: %d, as in the header", yamlfile.Plural(int64(len(fields)), "field"), len(r.header))}}, nil
	}
	var bad []rowError
	for i, field := range fields {
		if err := setColumn(found.Assignment, r.header[i], field); err != nil {
			line, column := r.csv.FieldPos(i)
			bad = append(bad, rowError{line, column, r.header[i] + ": " + err.Error()})
		}
	}
	if bad == nil {
		bad = r.checkRow(found)
	}
	return found, bad, nil
}

// checkRow returns the mistakes of an assignment at their columns.
func (r *csvRows) checkRow(found row) []rowError {
	var bad []rowError
	for _, mistake := range mistakesOf(found.Assignment) {
		where, _, _ := strings.Cut(mistake, ":")
		where, _, _ = strings.Cut(where, "[")
		if where == "numbers" {
			where = "limits"
		}
		e := rowError{found.line, 1, mistake}
		if i := slices.Index(r.header, where); i >= 0 {
			e.line, e.column = r.csv.FieldPos(i)
		}
		bad = append(bad, e)
	}
	return bad
}

// mistakesOf returns what is wrong with an assignment, each with its place first.
func mistakesOf(a *adminv1.Assignment) []string {
	err := checkAssignment(a)
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
		a.Domain = field
	case "entries":
		a.Entries, err = parseEntries(field)
	case "plan":
		a.Plan = field
	case "limits":
		a.Numbers, err = parseNumbersList(field)
	case "unlimited":
		a.Unlimited, err = parseBool(field)
	case "blocked":
		a.Blocked, err = parseBool(field)
	case "blocked_until":
		t, wrong := parseMoment(field)
		if err = wrong; err == nil {
			a.BlockedUntil = timestamppb.New(t)
		}
	case "until":
		t, wrong := parseMoment(field)
		if err = wrong; err == nil {
			a.Until = timestamppb.New(t)
		}
	case "reason":
		a.Reason = field
	}
	return err
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

// jsonRows reads JSON lines, each an Assignment in protobuf JSON.
type jsonRows struct {
	lines  *bufio.Scanner
	line   int
	domain string
}

// longestLine bounds a line of JSON, and a row of CSV, in bytes; a valid one is far
// shorter.
const longestLine = 1 << 20

func newJSONRows(from io.Reader, domain string) *jsonRows {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longestLine)
	return &jsonRows{lines: lines, domain: domain}
}

// jsonColumn finds the column in an error of protojson.
var jsonColumn = regexp.MustCompile(`\(line 1:(\d+)\): `)

func (r *jsonRows) next() (row, []rowError, error) {
	for r.lines.Scan() {
		r.line++
		text := r.lines.Bytes()
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		found := row{r.line, &adminv1.Assignment{}}
		if err := protojson.Unmarshal(text, found.Assignment); err != nil {
			text := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
			bad := rowError{r.line, 1, "found no assignment: " + text}
			if m := jsonColumn.FindStringSubmatch(bad.text); m != nil {
				bad.column, _ = strconv.Atoi(m[1])
				bad.text = strings.Replace(bad.text, m[0], "", 1)
			}
			return found, []rowError{bad}, nil
		}
		if found.Domain == "" {
			found.Domain = r.domain
		}
		found.MadeBy, found.MadeAt, found.Etag = "", nil, "" // which the daemon sets
		var bad []rowError
		for _, mistake := range mistakesOf(found.Assignment) {
			bad = append(bad, rowError{r.line, 1, mistake})
		}
		return found, bad, nil
	}
	if err := r.lines.Err(); err != nil {
		return row{}, nil, rowError{r.line + 1, 1, err.Error()}
	}
	return row{}, nil, io.EOF
}

// csvFields returns an assignment as the fields of columns.
func csvFields(a *adminv1.Assignment) []string {
	flag := map[bool]string{true: "true"}
	text := func(m *timestamppb.Timestamp) string {
		if m == nil {
			return ""
		}
		return m.AsTime().Format(momentText)
	}
	return []string{
		a.GetDomain(), formatEntries(a.GetEntries()), a.GetPlan(), formatNumbers(a.GetNumbers()),
		flag[a.GetUnlimited()], flag[a.GetBlocked()], text(a.GetBlockedUntil()), text(a.GetUntil()), a.GetReason(),
	}
}
