package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// bindJSON defines the flag that has a command print JSON: what stands on each
// line.
func bindJSON(fs *pflag.FlagSet, to *bool, what string) {
	fs.BoolVar(to, "json", false, "print "+what+" as a line of JSON")
}

// messageJSON writes fields by their names in the .proto file, all of them, so that
// a script finds each where it looks for it.
var messageJSON = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// answerJSON writes answers to callers as their HTTP API does.
var answerJSON = protojson.MarshalOptions{EmitDefaultValues: true}

// printMessage writes a message as a line of JSON, spelt as the admin API does.
func printMessage(out io.Writer, m proto.Message) error { return printSpelt(out, messageJSON, m) }

// printSpelt writes a message as a line of JSON.
func printSpelt(out io.Writer, options protojson.MarshalOptions, m proto.Message) error {
	text, err := options.Marshal(m)
	if err != nil {
		return err
	}
	// protojson varies its blanks on purpose.
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", spelling.AppendJSON(nil, line.Bytes()))
	return err
}

// printJSON writes a value of this program's own as a line of JSON.
func printJSON(out io.Writer, v any) error {
	var line bytes.Buffer
	lines := json.NewEncoder(&line)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(v); err != nil {
		return err
	}
	_, err := out.Write(spelling.AppendJSON(nil, line.Bytes()))
	return err
}

// secondsText writes a span as protobuf JSON does: "60s", "0.250s".
func secondsText(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%d.%03ds", d/time.Second, d%time.Second/time.Millisecond)
}

// whenToRetry says when a denied request would pass.
func whenToRetry(after *durationpb.Duration) string {
	if after == nil {
		return "it can never pass"
	}
	return "try again in " + timespan.Format(after.AsDuration())
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
