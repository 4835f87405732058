// Command conformance runs OpenCL test suites of third parties on the local driver and on borrowed
// devices, and writes conformance.md: the outcome of every sub-test. It fails if a sub-test that
// passes locally does not pass borrowed, over shared memory and over the network.
//
// The suites are piglit, as Debian packages it, and Khronos's OpenCL-CTS, if -cts names the folder
// of its programs. A program that is not installed is not a failure: the document says so.
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

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &conformance{}
	flag.StringVar(&c.binary, "outboard", "bin/outboard", "the outboard binary")
	flag.StringVar(&c.out, "out", "", "the folder of conformance.md; by default standard output")
	flag.StringVar(&c.cts, "cts", "", "the folder with the programs of OpenCL-CTS, built")
	flag.StringVar(&c.only, "only", "", "run only the programs whose name contains this")
	flag.DurationVar(&c.limit, "limit", 15*time.Minute, "how long a program may take")
	flag.Parse()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		stop()
		os.Exit(1)
	}
}

type conformance struct {
	binary, out, cts, only string
	limit                  time.Duration
}

// The ways to the device: the local driver, and a borrowed device of the same machine and of
// another node.
var ways = [...]string{"local", "shared memory", "network"}

func (c *conformance) run(ctx context.Context) (err error) {
	tests, err := c.tests()
	if err != nil {
		return err
	}
	if c.binary, err = filepath.Abs(c.binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "outboard-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Compiling each kernel once more, for a cache that no program reads, would double the time.
	uncached := []string{"--sandbox", "cache=off"}
	r, err := rig.Start(ctx, rig.Options{
		Binary: c.binary, Dir: dir,
		Nodes: []rig.Spec{{Name: "harbour", Args: uncached}, {Name: "dinghy", Devices: "none", Args: uncached}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	rows := runAll(ctx, tests, [...]suite.Launcher{suite.Local, borrowing(r, "harbour"), borrowing(r, "dinghy")})
	return errors.Join(ctx.Err(), c.report(len(tests), rows))
}

// tests returns the programs of all suites, or those that the command line names.
func (c *conformance) tests() ([]program, error) {
	all := piglit()
	more, err := cts(c.cts)
	if err != nil {
		return nil, err
	}
	var tests []program
	for _, p := range append(all, more...) {
		if strings.Contains(p.name, c.only) {
			p.Limit = c.limit
			tests = append(tests, p)
		}
	}
	if len(tests) == 0 {
		return nil, errors.New("no suite is installed: install Debian's piglit, or name a folder with -cts")
	}
	return tests, nil
}

func borrowing(r *rig.Rig, node string) suite.Launcher {
	return func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return r.Node(node).Command(ctx, append([]string{"run", "--timeout", "3m", "--", name}, args...)...)
	}
}

// report writes the document, and returns an error if a borrowed device differs.
func (c *conformance) report(programs int, rows []row) error {
	out := os.Stdout
	if c.out != "" {
		f, err := os.Create(filepath.Join(c.out, "conformance.md"))
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	if err := writeDocument(out, programs, rows); err != nil {
		return err
	}
	if n := len(differing(rows)); n > 0 {
		return fmt.Errorf("%d of %d sub-tests pass locally and not borrowed", n, len(rows))
	}
	return nil
}
