package cmdline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/proto/apijson"
)

// BindJSON defines the flag that makes a command print JSON; what says what is on each line.
func BindJSON(fs *pflag.FlagSet, to *bool, what string) {
	fs.BoolVar(to, "json", false, "print "+what+" as a line of JSON")
}

// messageJSON writes all fields, with their names in the .proto file, so that a script
// finds each where it expects it.
var messageJSON = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// WriteMessage writes a message as a line of JSON, in which integers up to 2^53 are numbers.
func WriteMessage(out io.Writer, m proto.Message) error {
	text, err := apijson.MarshalAll(messageJSON, m)
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

// WriteValue writes one of this program's own values as a line of JSON. Its fields are
// spelt like those of messages, and its spans are texts such as "1.5s".
func WriteValue(out io.Writer, v any) error {
	var line bytes.Buffer
	lines := json.NewEncoder(&line)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(v); err != nil {
		return err
	}
	_, err := out.Write(spelling.AppendJSON(nil, line.Bytes()))
	return err
}
