// Command accel measures what borrowing a device costs, against the local
// driver in the same minutes, and writes docs/bench/accel.md and accel.json.
//
// BENCH_QUICK=1 keeps it under a minute, at the price of wide intervals and of
// the long programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

func main() {
	b := &bench{quick: os.Getenv("BENCH_QUICK") != ""}
	flag.StringVar(&b.binary, "outboard", "bin/outboard", "the program to measure")
	flag.StringVar(&b.out, "out", "docs/bench", "where the report goes")
	flag.StringVar(&b.only, "only", "", "measure only the sections whose name has this in it")
	flag.StringVar(&b.peer.server, "pocld", "", "PoCL-Remote's server, to be measured beside ours")
	flag.StringVar(&b.peer.library, "libpocl", "", "PoCL-Remote's client library")
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
	binary, out, only string
	quick             bool
	peer              peer

	dir    string
	rig    *rig.Rig
	report paired.Report
}

// sections are measured in this order.
func (b *bench) sections() []section {
	return []section{
		{"calls", b.calls},
		{"delay", b.delayed},
		{"ffmpeg", b.ffmpeg},
		{"programs", b.programs},
		{"cut", b.cuts},
	}
}

type section struct {
	name string
	run  func(context.Context) error
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "outboard-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.start(ctx); err != nil {
		return err
	}
	defer func() {
		if closeErr := b.rig.Close(); err == nil {
			err = closeErr
		}
	}()
	b.report = paired.Report{Plane: "accel", Machine: paired.Machine(), Commit: commit(ctx), Date: time.Now().UTC(), Quick: b.quick}
	b.report.Notes = append(b.report.Notes, "The nodes ran "+b.rig.Where()+". All processes share the machine's cores: client, relays, worker and the device itself.")
	for _, s := range b.sections() {
		if !strings.Contains(s.name, b.only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s ...\n", s.name)
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.report.Markdown(os.Stdout)
	if b.only != "" {
		return nil // a part is no report
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	return b.report.Write(b.out)
}

func (b *bench) start(ctx context.Context) error {
	for name, sources := range map[string]string{
		"calls": "internal/accel/opencl/cltest/c/{bench,clt,child,names,opencl,work}.c",
		"hold":  "bench/e2e/testdata/hold.c",
	} {
		if err := compile(ctx, filepath.Join(b.dir, name), sources); err != nil {
			return err
		}
	}
	if err := b.peer.start(b.dir); err != nil {
		return err
	}
	var err error
	b.rig, err = rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.dir, "nodes"),
		Nodes: []rig.Spec{{Name: "harbour"}, {Name: "dinghy", Devices: "none"}},
	})
	return err
}

// compile builds a C program of the repository, whose root is the working folder.
func compile(ctx context.Context, to, sources string) error {
	out, err := exec.CommandContext(ctx, "bash", "-c", "cc -O2 -o "+to+" "+sources+" -lOpenCL -lpthread").CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile %s: %w: %s", sources, err, out)
	}
	return nil
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// The ways to a device.
const (
	local   = "local driver"
	shared  = "shared memory"
	network = "TCP with TLS"
	remote  = "PoCL-Remote, TCP"
)

// way returns how commands are started on that way.
func (b *bench) way(name string, flags ...string) suite.Way {
	node := map[string]string{shared: "harbour", network: "dinghy"}[name]
	switch {
	case name == remote:
		return b.peer.way
	case node == "":
		return suite.Local
	}
	return func(ctx context.Context, name string, args ...string) *exec.Cmd {
		run := append(append([]string{"run"}, flags...), "--", name)
		return b.rig.Node(node).Command(ctx, append(run, args...)...)
	}
}

func (b *bench) rounds(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

func (b *bench) row(r paired.Row, reason string) {
	if !r.Holds {
		r.Reason = reason
	}
	b.report.Rows = append(b.report.Rows, r)
	fmt.Fprintf(os.Stderr, "  %-60s %s %s (%s), ratio %s\n", r.Name, paired.Number(r.Value), r.Unit, r.Wanted, paired.Number(r.Ratio))
}
