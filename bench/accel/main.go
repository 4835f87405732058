// Command accel measures the cost of borrowing a device, against the local driver in the same
// minutes, and writes docs/bench/accel.md and accel.json.
//
// BENCH_QUICK=1 keeps it under a minute, at the price of wide intervals and without the long
// programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

func main() {
	b := &bench{}
	b.Flags()
	flag.StringVar(&b.binary, "outboard", "bin/outboard", "the program to measure")
	flag.StringVar(&b.peer.server, "pocld", "", "PoCL-Remote's server, to be measured beside ours")
	flag.StringVar(&b.peer.library, "libpocl", "", "PoCL-Remote's client library")
	os.Exit(paired.Main(b.run))
}

type bench struct {
	paired.Run
	binary string
	peer   peer
	rig    *rig.Rig
	warm   []string // paths to a device that are warmed up
}

// sections returns the sections in the order in which they are measured.
func (b *bench) sections() []paired.Section {
	return []paired.Section{
		{Name: "calls", Run: b.calls},
		{Name: "busy", Run: b.busy},
		{Name: "delay", Run: b.delayed},
		{Name: "ffmpeg", Run: b.ffmpeg},
		{Name: "programs", Run: b.programs},
		{Name: "cut", Run: b.cuts},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	end, err := b.Begin(ctx, "accel")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := b.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.rig.Close()) }()
	b.Report.Notes = append(b.Report.Notes, "The nodes ran "+b.rig.Where()+". All processes share the machine's cores: client, relays, worker and the device itself.")
	return b.Measure(ctx, b.sections())
}

func (b *bench) start(ctx context.Context) error {
	for name, sources := range map[string]string{
		"calls": "internal/accel/opencl/cltest/c/{bench,clt,child,names,opencl,work}.c",
		"hold":  "test/e2e/testdata/hold.c",
	} {
		if err := compile(ctx, filepath.Join(b.Dir, name), sources); err != nil {
			return err
		}
	}
	if err := b.peer.start(b.Dir); err != nil {
		return err
	}
	var err error
	b.rig, err = b.startPool(ctx, "nodes", nil)
	return err
}

// startPool starts harbour, which has the device, and dinghy, which reaches harbour over link.
func (b *bench) startPool(ctx context.Context, dir string, link *netem.Link) (*rig.Rig, error) {
	return rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, dir),
		Nodes: []rig.Spec{{Name: "harbour", Link: link}, {Name: "dinghy", Devices: "none"}},
	})
}

// compile builds a C program of the repository, whose root is the working directory.
func compile(ctx context.Context, to, sources string) error {
	out, err := exec.CommandContext(ctx, "bash", "-c", "cc -O2 -o "+to+" "+sources+" -lOpenCL -lpthread").CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile %s: %w: %s", sources, err, out)
	}
	return nil
}

// The paths to a device.
const (
	local   = "local driver"
	shared  = "shared memory"
	network = "TCP with TLS"
	remote  = "PoCL-Remote, TCP"
)

// launcher returns the launcher for a path to a device, by its name.
func (b *bench) launcher(name string) suite.Launcher {
	node := map[string]string{shared: "harbour", network: "dinghy"}[name]
	switch {
	case name == remote:
		return b.peer.command
	case node == "":
		return suite.Local
	}
	return borrowing(b.rig.Node(node))
}

// borrowing returns a launcher of commands with a device that node borrows.
func borrowing(node *rig.Node, flags ...string) suite.Launcher {
	return func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return node.Command(ctx, slices.Concat([]string{"run"}, flags, []string{"--", name}, args)...)
	}
}
