// Command demo borrows a device on real input and prints what happened: two
// nodes, harbour with the device and dinghy without, and programs that run on
// dinghy's side.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

func main() {
	binary := flag.String("outboard", "bin/outboard", "the program to show")
	loopback := flag.Bool("loopback", false, "keep the nodes out of network namespaces")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *loopback, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func programs() []suite.Program {
	return []suite.Program{
		suite.FFmpeg("avgblur_opencl=sizeX=3", 100),
		suite.FFmpeg("unsharp_opencl", 100),
		suite.CLBlast("xaxpy"),
		suite.CLPeak("--global-bandwidth", "--kernel-latency"),
	}
}

func run(ctx context.Context, binary string, loopback bool, out io.Writer) (err error) {
	binary, err = filepath.Abs(binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "outboard-demo-")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "Starting two nodes: harbour, which offers this machine's OpenCL devices, and dinghy, which has none.")
	r, err := rig.Start(ctx, rig.Options{
		Binary: binary, Dir: dir, Loopback: loopback,
		Nodes: []rig.Spec{{Name: "harbour"}, {Name: "dinghy", Devices: "none"}},
	})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := r.Close(); err == nil {
			err = closeErr
		}
	}()
	fmt.Fprintf(out, "The nodes run %s.\n\n", r.Where())
	if err := show(ctx, r, out); err != nil {
		return err
	}
	return compare(ctx, r, dir, out)
}

// show prints what dinghy sees.
func show(ctx context.Context, r *rig.Rig, out io.Writer) error {
	fmt.Fprintln(out, "dinghy$ outboard devices")
	text, err := r.Node("dinghy").Output(ctx, "devices")
	fmt.Fprintln(out, text)
	return err
}

// compare runs every program here and from dinghy, and prints the table.
func compare(ctx context.Context, r *rig.Rig, dir string, out io.Writer) error {
	borrowed := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return r.Node("dinghy").Command(ctx, append([]string{"run", "--", name}, args...)...)
	}
	failed := 0
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "program\tsame result?\tlocal s\tborrowed s\tratio")
	for _, p := range programs() {
		fmt.Fprintf(os.Stderr, "running %s ...\n", p.Name)
		// The driver's kernel caches are warmed first, so that the times compare.
		for _, way := range []suite.Way{suite.Local, borrowed} {
			p.Run(ctx, way, dir)
		}
		local, remote := p.Run(ctx, suite.Local, dir), p.Run(ctx, borrowed, dir)
		same := "yes"
		if err := p.Compare(local, remote); err != nil {
			same = "NO"
			failed++
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		}
		fmt.Fprintf(table, "%s\t%s\t%.2f\t%.2f\t%.2f\n", p.Name, same, local.Wall.Seconds(), remote.Wall.Seconds(), remote.Wall.Seconds()/local.Wall.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d programs differ", failed, len(programs()))
	}
	return ctx.Err()
}
