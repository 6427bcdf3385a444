package look

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
	"github.com/ratelimitd/ratelimitd/internal/cli/flags"
	"github.com/ratelimitd/ratelimitd/internal/cli/moment"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/find"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// logSearch are the flags of log.
type logSearch struct {
	query        find.Query
	since, until string
	config       string
	hashKey      string
	follow, json bool
	now          time.Time
}

// LogCommand finds lines in the log of decisions.
func LogCommand() *cobra.Command {
	s := logSearch{}
	cmd := &cobra.Command{
		Use:   "log [KEY=VALUE[,KEY=VALUE]...] [LOG...]",
		Short: "Find lines in the log of decisions",
		Long: `Finds decisions in the log of decisions: those about a subject, such as
tenant=acme, which means all descriptors that begin with these entries; or all.
It shows when, what was decided, domain, subject, rule and cost, and why.

A LOG is a file, plain or compressed with gzip or zstd, or - for standard input.
Without one it is that of decisions.path in the daemon's settings, with all
rotated files. Times are in the shell's time zone (TZ).

Exits with 1 if nothing was found.`,
		Example: `  ratelimitd log tenant=acme --result denied --since 03:00 --until 04:00
  ratelimitd log --domain api --rule tenant --since 1h
  ratelimitd log --follow --result denied
  ratelimitd log user=alice decisions*.jsonl*`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&s.query.Domain, "domain", "", "only of this domain")
	fs.StringVar(&s.query.Rule, "rule", "", `only by this rule, such as "user=alice / route"`)
	flags.BindWord(cmd, &s.query.Result, find.Results(), "result", "only with this result: "+strings.Join(find.Results(), ", "))
	fs.StringVar(&s.since, "since", "", "only from then on: "+moment.AllowedPast)
	fs.StringVar(&s.until, "until", "", "only before then, or to the end of that day; spelt as --since")
	fs.BoolVarP(&s.follow, "follow", "f", false, "go on as lines are written, through rotation, until Ctrl-C; without --since it shows only those")
	fs.StringVar(&s.hashKey, "hash-key-file", "", "file of the key, where values are hashed (default: decisions.hash_key_file)")
	fs.StringVar(&s.config, "config", os.Getenv("RATELIMITD_CONFIG"), "YAML file of the daemon's settings")
	fs.BoolVar(&s.json, "json", false, "print the lines of the log")
	cmd.RunE = s.run
	return cmd
}

func (s *logSearch) run(cmd *cobra.Command, args []string) error {
	s.now = time.Now()
	args, err := s.subject(args)
	if err != nil {
		return err
	}
	if err := s.times(); err != nil {
		return err
	}
	logs, isOwn, err := s.logs(args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	// Reading standard input does not end with ctx, so there a signal ends the command.
	if s.follow && !slices.Contains(logs, sink.Stdout) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	buffered := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	rows := logRows{out: buffered, width: terminal.TableColumns(cmd.OutOrStdout()), zone: s.now.Location()}
	tell := rows.write
	if s.json {
		tell = rows.writeJSON
	}
	if slices.Contains(logs, sink.Stdout) {
		tell = flushing(tell, buffered)
	}
	finder := find.New(ctx, find.Options{Query: s.query, Tell: tell, Pause: buffered.Flush})
	err = errors.Join(s.search(cmd, finder, logs, isOwn), buffered.Flush())
	s.tell(terminal.Messages(cmd.ErrOrStderr()), &finder.Stats, logs)
	if err == nil && finder.Found == 0 && !s.follow {
		return exit.Code(exit.Error)
	}
	return err
}

// flushing shows each line at once: nobody knows when more will come out of a pipe.
func flushing(tell func(find.Found) error, out *bufio.Writer) func(find.Found) error {
	return func(f find.Found) error {
		if err := tell(f); err != nil {
			return err
		}
		return out.Flush()
	}
}

// subject takes the subject from the arguments, and returns the rest.
func (s *logSearch) subject(args []string) (logs []string, err error) {
	if len(args) == 0 || !strings.Contains(args[0], "=") || isFile(args[0]) {
		return args, nil
	}
	s.query.Subject, err = spelling.ParseEntries(args[0])
	return args[1:], err
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// times reads --since and --until.
func (s *logSearch) times() error {
	var since, until moment.Interval
	var err error
	if s.since != "" {
		if since, err = moment.ParsePast(s.since, s.now); err != nil {
			return fmt.Errorf("flag --since: %w", err)
		}
		s.query.Since = since.From.UnixMicro()
	}
	if s.until != "" {
		if until, err = moment.ParsePast(s.until, s.now); err != nil {
			return fmt.Errorf("flag --until: %w", err)
		}
		s.query.Until = until.To.UnixMicro()
	}
	switch {
	case s.since != "" && s.until != "" && s.query.Until <= s.query.Since:
		return fmt.Errorf("found --until %s, which is %s, and --since %s, which is %s; allowed: --until after --since",
			s.until, until.To.Format(time.RFC3339), s.since, since.From.Format(time.RFC3339))
	case s.since != "" && since.From.After(s.now):
		return fmt.Errorf("flag --since: found %s, which is to come; allowed: a moment before now", since.From.Format(time.RFC3339))
	case s.follow && s.until != "":
		return errors.New("found --until beside --follow; allowed: one of them")
	}
	return nil
}

// logs returns the logs to search: the arguments, or the daemon's log.
func (s *logSearch) logs(args []string) (logs []string, isOwn bool, err error) {
	if s.hashKey != "" {
		d := settings.Decisions{Values: settings.HashValues, HashKeyFile: s.hashKey}
		if s.query.HashKey, err = d.HashKey(); err != nil {
			return nil, false, fmt.Errorf("flag --hash-key-file: %s", strings.TrimPrefix(err.Error(), "decisions.hash_key_file: "))
		}
	}
	if len(args) > 0 {
		return args, false, s.checkLogs(args)
	}
	own, _, err := settings.Load(nil, os.Environ(), s.config)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("the daemon's settings in this environment, which a LOG makes needless:\n%w", err)
	case own.Decisions.Path == "":
		return nil, false, errors.New("found no log of decisions: decisions.path is not set in this environment or in --config; give the file, such as decisions.jsonl, or set it (docs/decisions.md)")
	case own.Decisions.Path == sink.Stdout:
		return nil, false, errors.New("the daemon writes its log of decisions to standard output (decisions.path is -): give the file in which that ends, or pipe it: ... | ratelimitd log -")
	}
	if s.query.HashKey == nil && len(s.query.Subject) > 0 {
		if s.query.HashKey, err = own.Decisions.HashKey(); err != nil {
			return nil, false, err
		}
	}
	return []string{own.Decisions.Path}, true, nil
}

// checkLogs refuses what is not a file before anything is shown.
func (s *logSearch) checkLogs(names []string) error {
	for i, name := range names {
		if name == sink.Stdout {
			if s.follow && len(names) > 1 {
				return errors.New("found - beside a file with --follow; allowed: one of them")
			}
			continue
		}
		info, err := os.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && s.follow && i == len(names)-1 && strings.ContainsAny(name, "./"):
			// It may appear later.
		case errors.Is(err, fs.ErrNotExist) && i == 0 && s.query.Subject == nil && !strings.ContainsAny(name, "./"):
			return fmt.Errorf("found %q, which is neither a subject, such as tenant=acme, nor a file", name)
		case errors.Is(err, fs.ErrNotExist) && s.query.Subject != nil && strings.Contains(name, "="):
			return fmt.Errorf("found %q beside another subject; allowed: one", name)
		case err != nil:
			return fmt.Errorf("log: %w", err)
		case info.IsDir():
			return fmt.Errorf("found the folder %s; allowed: a file, or - for standard input", name)
		case s.follow && i == len(names)-1 && !info.Mode().IsRegular():
			return fmt.Errorf("found %s with --follow, which is no file, such as a pipe; allowed: a file, or - for standard input", name)
		case s.follow && i == len(names)-1 && isPacked(name):
			return fmt.Errorf("found %s with --follow, which is compressed and does not grow; allowed: the file of decisions.path last", name)
		}
	}
	return nil
}

func isPacked(name string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	from := bufio.NewReader(file)
	unpacked, err := decisionlog.Unpack(from)
	return err == nil && unpacked != io.Reader(from)
}

// search searches the logs.
func (s *logSearch) search(cmd *cobra.Command, f *find.Finder, logs []string, isOwn bool) error {
	logs = sink.Finished(logs, func(text string) {
		fmt.Fprintln(terminal.Messages(cmd.ErrOrStderr()), "warning: "+spelling.Visible(text))
	})
	if isOwn && !s.follow {
		return f.Files(logs[0])
	}
	for i, name := range logs {
		var err error
		switch {
		case name == sink.Stdout:
			err = f.Read("standard input", cmd.InOrStdin())
		case s.follow && i == len(logs)-1:
			err = f.Follow(name, s.begin(isOwn))
		case s.follow && s.since == "":
			// Only what is written from now on is wanted.
		default:
			err = f.File(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *logSearch) begin(isOwn bool) find.Begin {
	switch {
	case s.since == "":
		return find.FromNow
	case isOwn:
		return find.FromRotated
	}
	return find.FromFile
}

// tell says what could not be read, and why nothing was found.
func (s *logSearch) tell(to io.Writer, stats *find.Stats, logs []string) {
	if stats.Unread > 0 {
		fmt.Fprintf(to, "%s could not be read; the first: %s\n", yamlfile.Plural(int64(stats.Unread), "line"), spelling.Visible(stats.FirstUnread.Error()))
	}
	if stats.Found > 0 || s.follow {
		return
	}
	subject := ""
	if len(s.query.Subject) > 0 {
		subject = " about " + spelling.Visible(spelling.ShellWord(spelling.Entries(s.query.Subject)))
	}
	fmt.Fprintf(to, "found no line%s in %s (%s read)\n", subject, spelling.Visible(strings.Join(logs, ", ")), yamlfile.Plural(int64(stats.Lines), "line"))
	switch {
	case stats.About > 0:
		fmt.Fprintf(to, "%s about it, which the other flags leave out\n", yamlfile.Plural(int64(stats.About), "line"))
	case stats.Elsewhere != nil:
		fmt.Fprintf(to, "a subject is the beginning of a descriptor; there is %s\n", spelling.Visible(spelling.ShellWord(spelling.Entries(stats.Elsewhere))))
	case stats.Hashed > 0 && s.query.HashKey == nil && !slices.ContainsFunc(s.query.Subject, func(e bucket.Entry) bool { return decisionlog.IsHash(e.Value) }):
		fmt.Fprintln(to, "values in it are hashed (decisions.values: hash): give the key with --hash-key-file, or a value as it stands there, such as user=h:0123456789abcdef")
	}
}
