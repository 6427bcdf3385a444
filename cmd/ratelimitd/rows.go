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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// columns are those of assignments in CSV, in the order in which they are written.
var columns = []string{
	"domain", "entries", "plan", "plan_until", "limits", "limits_until", "unlimited", "unlimited_until", "blocked", "blocked_until", "reason",
}

// untilColumn is a column of CSV that is read beside these: the end of the parts of a row
// that have none of their own, except a block beside others.
const untilColumn = "until"

// partColumns are the columns of parts, with the part that goes where a row has nothing in
// them. A block stays.
var partColumns = map[string][]adminv1.Part{
	"plan": {adminv1.Part_PART_PLAN}, "limits": {adminv1.Part_PART_NUMBERS}, "unlimited": {adminv1.Part_PART_UNLIMITED}, "blocked": nil,
}

// row is what a row of a file sets, and the parts that it removes before.
type row struct {
	line int
	*adminv1.Assignment
	remove []adminv1.Part
	// mayBeMade says that the store did not answer when it was put.
	mayBeMade bool
}

func (r *row) patch() *adminv1.AssignmentPatch {
	return &adminv1.AssignmentPatch{Assignment: r.Assignment, Remove: r.remove}
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
	known := append(slices.Clone(columns), untilColumn)
	allowed := "a header of the columns " + yamlfile.Commas(known)
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
		if !slices.Contains(known, name) || slices.Contains(r.header, name) {
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
	if !slices.ContainsFunc(r.header, func(name string) bool { _, isPart := partColumns[name]; return isPart }) {
		return nil, rowError{1, 1, "found a header without a part of assignments; allowed: one or more of plan, limits, unlimited and blocked"}
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
	found := row{line: line, Assignment: &adminv1.Assignment{Domain: r.domain}}
	if len(fields) != len(r.header) {
		return found, []rowError{{line, 1, fmt.Sprintf("found %s; allowed: %d, as in the header", yamlfile.Plural(int64(len(fields)), "field"), len(r.header))}}, nil
	}
	var bad []rowError
	set := func(i int) {
		found.remove = append(found.remove, partColumns[r.header[i]]...)
		if err := setColumn(found.Assignment, r.header[i], fields[i]); err != nil {
			line, column := r.csv.FieldPos(i)
			bad = append(bad, rowError{line, column, r.header[i] + ": " + err.Error()})
		}
	}
	ends := slices.Index(r.header, limitsUntil)
	for i := range fields {
		if i != ends {
			set(i)
		}
	}
	if ends >= 0 && bad == nil {
		set(ends) // once it is known of how many limits
	}
	if bad == nil {
		bad = r.checkRow(found)
	}
	return found, bad, nil
}

// checkRow returns the mistakes of an assignment at their columns.
func (r *csvRows) checkRow(found row) []rowError {
	var bad []rowError
	for _, mistake := range mistakesOf(found) {
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

// mistakesOf returns what is wrong with a row, each with its place first.
func mistakesOf(r row) []string {
	err := checkPatch(r.patch())
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
		a.Entries, err = parseEntries(field)
	case "plan":
		a.Plan = spelling.Unescape(field)
	case "limits":
		a.Numbers, err = parseNumbersList(field)
	case "unlimited":
		a.Unlimited, err = parseBool(field)
	case "blocked":
		a.Blocked, err = parseBool(field)
	case "plan_until":
		a.PlanUntil, err = endOfCell(field)
	case limitsUntil:
		err = setLimitsUntil(a.GetNumbers(), field)
	case "unlimited_until":
		a.UnlimitedUntil, err = endOfCell(field)
	case "blocked_until":
		a.BlockedUntil, err = endOfCell(field)
	case untilColumn:
		a.Until, err = endOfCell(field)
	case "reason":
		a.Reason = spelling.Unescape(field)
	}
	return err
}

// limitsUntil is the column with the ends of numbers.
const limitsUntil = "limits_until"

func endOfCell(field string) (*timestamppb.Timestamp, error) {
	t, err := parseMoment(field)
	if err != nil {
		return nil, err
	}
	return timestamppb.New(t), nil
}

// setLimitsUntil reads the ends of numbers: one for all, or one for each in their order,
// parted by semicolons, of which some may be empty.
func setLimitsUntil(numbers []*adminv1.AssignedNumbers, field string) error {
	texts := strings.Split(field, ";")
	if len(texts) != 1 && len(texts) != len(numbers) || len(numbers) == 0 {
		return fmt.Errorf("found %s of %s; allowed: one for all limits, or one for each, parted by semicolons",
			yamlfile.Plural(int64(len(texts)), "moment"), yamlfile.Plural(int64(len(numbers)), "limit"))
	}
	for i, n := range numbers {
		text := strings.TrimSpace(texts[min(i, len(texts)-1)])
		if text == "" {
			continue
		}
		var err error
		if n.Until, err = endOfCell(text); err != nil {
			return err
		}
	}
	return nil
}

// formatLimitsUntil writes the ends of numbers as setLimitsUntil reads them.
func formatLimitsUntil(numbers []*adminv1.AssignedNumbers) string {
	ends := make([]string, len(numbers))
	for i, n := range numbers {
		ends[i] = formatEnd(n.Until)
	}
	if len(slices.Compact(slices.Clone(ends))) <= 1 {
		return strings.Join(ends[:min(1, len(ends))], "")
	}
	return strings.Join(ends, ";")
}

func formatEnd(m *timestamppb.Timestamp) string {
	if m == nil {
		return ""
	}
	return m.AsTime().Format(momentText)
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

// jsonRows reads JSON lines, each an Assignment in protobuf JSON that says the whole but a
// block, or a block alone.
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
		found := row{line: r.line, Assignment: &adminv1.Assignment{}}
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
		if a := found.Assignment; a.GetPlan() != "" || a.GetUnlimited() || len(a.GetNumbers()) > 0 {
			found.remove = []adminv1.Part{adminv1.Part_PART_TERMS}
		}
		for _, mistake := range mistakesOf(found) {
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
	a = withOwnEnds(a)
	return []string{
		spelling.Escape(a.GetDomain()), formatEntries(a.GetEntries()), spelling.Escape(a.GetPlan()), formatEnd(a.PlanUntil),
		formatNumbers(a.GetNumbers()), formatLimitsUntil(a.GetNumbers()),
		flag[a.GetUnlimited()], formatEnd(a.UnlimitedUntil), flag[a.GetBlocked()], formatEnd(a.GetBlockedUntil()), spelling.Escape(a.GetReason()),
	}
}

// withOwnEnds returns an assignment whose parts have ends of their own in place of until,
// which is all that daemons from before parts say.
func withOwnEnds(a *adminv1.Assignment) *adminv1.Assignment {
	if a.Until == nil {
		return a
	}
	a = proto.CloneOf(a)
	if a.GetPlan() != "" {
		a.PlanUntil = orUntil(a.PlanUntil, a)
	}
	if a.GetUnlimited() {
		a.UnlimitedUntil = orUntil(a.UnlimitedUntil, a)
	}
	for _, n := range a.GetNumbers() {
		n.Until = orUntil(n.Until, a)
	}
	if a.GetPlan() == "" && !a.GetUnlimited() && len(a.GetNumbers()) == 0 {
		a.BlockedUntil = orUntil(a.BlockedUntil, a)
	}
	a.Until = nil
	return a
}
