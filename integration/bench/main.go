// Command bench loads the whole daemon and prints what a decision costs: next
// to bare gRPC servers, which answer without deciding, in the same run.
//
// It starts everything itself: the daemon, which it builds; redis-servers from
// PATH; and the bare servers, which are processes of its own. A row of its
// table is a load; the servers of a row take turns in short slices, so that
// what else happens on the machine hits all alike, and each number is the
// median of its slices. docs/performance.md says how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/ratelimitd/ratelimitd/internal/gctuning"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Who no longer reads the output does not keep this from tidying up.
	signal.Ignore(syscall.SIGPIPE)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	full, overload, markdown, printLimits bool
	run                                   *regexp.Regexp
	plan                                  plan
	compared                              comparisons
}

// command runs the program with its arguments.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 1 && (args[0] == bareCommand || args[0] == bareTunedCommand) {
		return serveBare(args[0] == bareTunedCommand, stdout)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.printLimits {
		_, err := io.WriteString(stdout, limitsFile(""))
		return err
	}
	return bench(ctx, o, stdout, stderr)
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	o.plan = plan{connect: 300 * time.Millisecond}
	name := ""
	fs.BoolVar(&o.full, "full", false, "also every store with all kinds of keys, descriptors and callers, and the overload")
	fs.BoolVar(&o.overload, "overload", false, "also send more than the daemon can answer")
	fs.BoolVar(&o.markdown, "markdown", false, "print Markdown")
	fs.BoolVar(&o.printLimits, "print-limits", false, "print the limits file that a compared server must have loaded, and end")
	fs.StringVar(&name, "run", "", "only the rows whose names match this regular expression")
	fs.IntVar(&o.plan.rounds, "rounds", 5, "how often each server of a row has its turn")
	fs.DurationVar(&o.plan.slice, "slice", 600*time.Millisecond, "how long a turn is measured")
	fs.DurationVar(&o.plan.warm, "warm", 150*time.Millisecond, "how long a turn runs before it is measured")
	fs.Var(&o.compared, "compare", "another server of the same protocol, NAME=HOST:PORT[,PID]; may be repeated")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("found the argument %q; allowed: flags only", fs.Arg(0))
	}
	if o.plan.rounds < 1 || o.plan.slice <= 0 || o.plan.warm < 0 {
		return o, fmt.Errorf("found -rounds %d -slice %v -warm %v; allowed: at least 1, more than 0s, at least 0s", o.plan.rounds, o.plan.slice, o.plan.warm)
	}
	if o.run, err = regexp.Compile(name); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	return o, nil
}

// bench measures and prints. Its error is that something does not work or
// answers wrongly, never that it is slow.
func bench(ctx context.Context, o options, stdout, stderr io.Writer) error {
	// The generator shares the processors with what it measures.
	gctuning.Start()
	groups := usualRows()
	if o.full {
		groups = allRows()
	}
	groups = selectRows(groups, o.run)
	overload := o.full || o.overload
	if len(groups) == 0 && !overload {
		return fmt.Errorf("-run: found %q, which matches no row", o.run)
	}
	progress := func(format string, args ...any) { fmt.Fprintf(stderr, "# "+format+"\n", args...) }
	l, err := openLab(ctx, o.compared, progress)
	if err != nil {
		return err
	}
	defer l.close()

	r := report{compared: o.compared, markdown: o.markdown}
	noise := l.listen()
	for _, g := range groups {
		for _, row := range g {
			progress("%s: %s", row.name, row.says)
		}
		results, err := l.measure(ctx, g, o.plan)
		if err != nil {
			return fmt.Errorf("%s: %w", g[0].name, err)
		}
		r.results = append(r.results, results...)
	}
	if overload {
		progress("overload")
		if r.overload, err = l.overload(ctx, o.plan); err != nil {
			return fmt.Errorf("overload: %w", err)
		}
	}
	fmt.Fprintf(stdout, "%s\n%d slices of %v, of which each number is the median; %s\n", machine(ctx), o.plan.rounds, o.plan.slice, noise())
	if l.plainSet > 0 {
		fmt.Fprintf(stdout, "a SET with PX alone, 64 in a pipeline, costs this Redis %.2f us\n", l.plainSet.Seconds()*1e6)
	}
	r.print(stdout)
	for _, p := range r.problems() {
		if p.wrong {
			return fmt.Errorf("wrong answers: %s", p.text)
		}
	}
	return nil
}
