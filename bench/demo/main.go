// Command demo shows a borrowed device: it starts two nodes, harbour with the device and dinghy
// without, runs real programs on dinghy, and compares results and times with local runs. Then
// dinghy uses a model that harbour serves. It takes about a minute and reports each step.
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
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

func main() {
	binary := flag.String("outboard", "bin/outboard", "the outboard binary")
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

// programs does without hashcat: its kernels compile for 45 s of a processor, three times.
func programs() []suite.Program {
	return []suite.Program{
		suite.FFmpeg("avgblur_opencl=sizeX=3", 100),
		suite.FFmpeg("unsharp_opencl", 100),
		suite.CLBlast("xaxpy"),
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
	fmt.Fprintln(out, "[1/4] Starting two nodes: harbour, which offers this machine's OpenCL devices, and dinghy, which has none.")
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
	fmt.Fprintf(out, "      The nodes run %s. Borrowing crosses TCP with TLS.\n\n", r.Where())
	if err := printDevices(ctx, r, out); err != nil {
		return err
	}
	if err := compare(ctx, r, dir, out); err != nil {
		return err
	}
	return showModel(ctx, r, dir, out)
}

// printDevices prints the devices that dinghy sees.
func printDevices(ctx context.Context, r *rig.Rig, out io.Writer) error {
	fmt.Fprintln(out, "[2/4] dinghy has no device of its own, and sees the pool's:")
	fmt.Fprintln(out, "dinghy$ outboard devices")
	text, err := r.Node("dinghy").Output(ctx, "devices")
	fmt.Fprintln(out, text)
	return err
}

// compare runs every program locally and from dinghy, and prints a table.
func compare(ctx context.Context, r *rig.Rig, dir string, out io.Writer) error {
	borrowed := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return r.Node("dinghy").Command(ctx, append([]string{"run", "--", name}, args...)...)
	}
	far, err := os.MkdirTemp(dir, "home-")
	if err != nil {
		return err
	}
	all := programs()
	fmt.Fprintf(out, "[3/4] Running %d programs, unchanged: on the local driver, and on dinghy with `outboard run`.\n", len(all))
	fmt.Fprintln(out, "      Each runs twice on both; the first run compiles its kernels, the second is timed.")
	for i, p := range all {
		fmt.Fprintf(out, "      first run %d of %d: %s\n", i+1, len(all), p.Name)
		var first sync.WaitGroup // compilers of kernels use one processor each
		first.Go(func() { p.Run(ctx, suite.Local, dir) })
		first.Go(func() { p.Run(ctx, borrowed, far) })
		first.Wait()
	}
	// After a session, harbour compiles its kernels once more into the program's cache.
	if err := r.Node("harbour").WaitIdle(ctx); err != nil {
		return err
	}
	failed := 0
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "program\tsame result?\tlocal s\tborrowed s\tratio")
	for i, p := range all {
		fmt.Fprintf(out, "      timed run %d of %d: %s\n", i+1, len(all), p.Name)
		local, remote := p.Run(ctx, suite.Local, dir), p.Run(ctx, borrowed, far)
		same := "yes"
		if err := p.Compare(local, remote); err != nil {
			same = "NO"
			failed++
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		}
		fmt.Fprintf(table, "%s\t%s\t%.2f\t%.2f\t%.2f\n", p.Name, same, local.Wall.Seconds(), remote.Wall.Seconds(), remote.Wall.Seconds()/local.Wall.Seconds())
	}
	fmt.Fprintln(out)
	if err := table.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d programs differ", failed, len(all))
	}
	return ctx.Err()
}
