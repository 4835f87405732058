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
	if text := os.Getenv(roleVariable); text != "" {
		os.Exit(play(text))
	}
	b := &bench{quick: os.Getenv("BENCH_QUICK") != "", launch: launchProcess}
	flag.StringVar(&b.out, "out", "docs/bench", "where the report goes")
	flag.StringVar(&b.only, "only", "", "measure only the sections whose name has this in it")
	flag.StringVar(&b.profiles, "profile", "", "a folder for CPU profiles of what is measured, whose heads are printed")
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
	dir      string // everything that the run makes
	guests   guests
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
		{"http", b.http},
		{"start", b.start},
		{"checks", b.checks},
		{"chain", b.chain},
		{"thumbnails", b.thumbnails},
		{"enrollment", b.enrollment},
		{"instances", b.instances},
		{"handover", b.handover},
		{"launch", b.launchTimes},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "ob"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.guests.dir = b.dir
	if err := b.makeProfiles(); err != nil {
		return err
	}
	b.report = paired.Report{Plane: "function", Machine: paired.Machine(), Commit: commit(ctx), Date: time.Now().UTC(), Quick: b.quick}
	b.report.Notes = notes()
	if b.only == "" {
		if err := b.guests.build(ctx, allGuests()); err != nil {
			return err
		}
	}
	err = errors.Join(b.measure(ctx, b.sections()), b.printProfiles(ctx))
	b.report.Markdown(os.Stdout)
	return err
}

// measure runs all sections, and fails when one of them did, after the others.
func (b *bench) measure(ctx context.Context, sections []section) error {
	var errs []error
	for _, s := range sections {
		if !strings.Contains(s.name, b.only) || ctx.Err() != nil {
			continue
		}
		b.section = s.name
		began := time.Now()
		fmt.Fprintf(os.Stderr, "bench: %s ...\n", s.name)
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		fmt.Fprintf(os.Stderr, "  took %v\n", time.Since(began).Round(time.Second/10))
		if err := b.write(); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// write keeps what was measured so far.
func (b *bench) write() error {
	if b.only != "" {
		return nil // a part is no report
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	return b.report.Write(b.out)
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func notes() []string {
	return []string{
		"Functions are Go's own WebAssembly (GOOS=wasip1), and begin with fresh state for each request. The plain instance is the engine, wazero, with the module " +
			"as it was built and with what a call needs of the host.",
		"Requests go through a tenant's process with all its parts, and bring the pool's state of one node along; that process, the native handler and the clients " +
			"are one process on the same cores.",
	}
}
