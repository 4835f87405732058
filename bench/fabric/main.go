package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

func main() {
	if status, is := carry(); is {
		os.Exit(status)
	}
	if text := os.Getenv(roleVariable); text != "" {
		os.Exit(play(text))
	}
	b := &bench{quick: os.Getenv("BENCH_QUICK") != "", launch: launchProcess}
	flag.StringVar(&b.out, "out", "docs/bench", "where the report goes")
	flag.StringVar(&b.only, "only", "", "measure only the sections whose name has this in it")
	flag.StringVar(&b.profiles, "profile", "", "a folder for a CPU profile of each process, whose heads are printed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

type bench struct {
	out, only, profiles string
	quick               bool

	launch   launch
	dir      string // for sockets: short
	section  string
	profiled []string
	report   paired.Report
}

type section struct {
	name string
	run  func(context.Context) error
}

// sections are measured in this order.
func (b *bench) sections() []section {
	return []section{
		{"unary-64", func(ctx context.Context) error { return b.unary(ctx, 64) }},
		{"unary-4k", func(ctx context.Context) error { return b.unary(ctx, 4<<10) }},
		{"unary-256k", func(ctx context.Context) error { return b.unary(ctx, large) }},
		{"tls-1", func(ctx context.Context) error { return b.network(ctx, 1) }},
		{"tls-64", func(ctx context.Context) error { return b.network(ctx, 64) }},
		{"chain", b.chain},
		{"shop", b.shop},
		{"swaps", b.swaps},
		{"upgrades", b.upgrades},
		{"balance", b.balance},
		{"transfer", b.transfer},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "ob"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.makeProfiles(); err != nil {
		return err
	}
	b.report = paired.Report{Plane: "fabric", Machine: paired.Machine(), Commit: commit(ctx), Date: time.Now().UTC(), Quick: b.quick}
	b.report.Notes = notes()
	err = errors.Join(b.measure(ctx), b.printProfiles(ctx))
	b.report.Markdown(os.Stdout)
	return err
}

// write writes what there is so far: a run that is cut short has a report too.
func (b *bench) write() error {
	if b.only != "" {
		return nil // a part is no report
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	return b.report.Write(b.out)
}

// measure runs all sections, and fails when one of them did, after the others.
func (b *bench) measure(ctx context.Context) error {
	var errs []error
	for _, s := range b.sections() {
		if !strings.Contains(s.name, b.only) || ctx.Err() != nil {
			continue
		}
		b.section = s.name
		fmt.Fprintf(os.Stderr, "bench: %s ...\n", s.name)
		began := time.Now()
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %v\n", s.name, time.Since(began).Round(time.Second))
		errs = append(errs, b.write())
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// rounds is how often each way has its turn, besides the first that does not count.
func (b *bench) rounds(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// turn is how long one way has its turn.
func (b *bench) turn(full, quick time.Duration) time.Duration {
	if b.quick {
		return quick
	}
	return full
}

func (b *bench) row(r paired.Row) {
	if r.Reason == "" {
		r = because(r, reasonFor(r.Name))
	}
	b.report.Rows = append(b.report.Rows, r)
	fmt.Fprintf(os.Stderr, "  %-70s %s %s, %s %s, ratio %s (%s)\n", r.Name, paired.Number(r.Value), r.Unit,
		r.ReferenceName, paired.Number(r.Reference), paired.Number(r.Ratio), r.Wanted)
}

// because gives a row that falls short its reason.
func because(r paired.Row, reason string) paired.Row {
	if !r.Holds {
		r.Reason = reason
	}
	return r
}

// none adds a row that wants no single one of what was counted.
func (b *bench) none(name, unit string, values []float64) {
	r := paired.NewRow(name, unit, "", values, nil, paired.Goal{})
	r.Value = sum(values)
	r.Wanted, r.Holds = "0", r.Value == 0
	b.row(r)
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

func notes() []string {
	return []string{
		"The processes are real and separate, share the machine's cores, and have the default GOMAXPROCS. Times of calls are medians of each turn's median; " +
			"CPU is user and system time of all processes that the call passes, and a context switch is a thread of theirs that goes to sleep. All clients pass a context that can be cancelled. Both stacks have their default windows and buffers.",
		"The proxy is a grpc-go server and client in one process with a codec that does not decode, one connection to the server, and an access list, a token bucket " +
			"and a counter. The managed process has an access list, a token bucket and a concurrency limit, and counts each call by method, peer and policy.",
	}
}
