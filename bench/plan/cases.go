package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// program is one program with its recordings.
type program struct {
	suite.Program
	home          string
	traces        map[trace.Mode][]recording
	local, remote string // files of the traces that predictions read
	used          sums
	// recorded is the time of the local trace, references are local runs in turn with those over the
	// links.
	recorded   time.Duration
	references []run
	// expected are the times predicted for the bench's links, and over a typical link.
	expected []time.Duration
	typical  time.Duration
}

// short returns the program's name for files.
func (p *program) short() string { return strings.NewReplacer(" ", "-", "/", "-").Replace(p.Name) }

// choose sets the programs and the links of the measurement.
func (b *bench) choose() error {
	programs, err := regexp.Compile(b.match)
	if err != nil {
		return fmt.Errorf("-program: %w", err)
	}
	over, err := regexp.Compile(b.overLinks)
	if err != nil {
		return fmt.Errorf("-link: %w", err)
	}
	all := []suite.Program{
		suite.FFmpeg("avgblur_opencl", 40), suite.FFmpeg("unsharp_opencl", 40),
		suite.CLBlast("xaxpy"), suite.CLBlast("xdot"), suite.CLBlast("xscal"), suite.CLBlast("xnrm2"), suite.CLBlast("xasum"),
		suite.CLPeak("--compute-integer"), suite.Hashcat(),
	}
	if b.Quick {
		all = []suite.Program{all[0], all[6]}
	}
	for _, p := range all {
		if programs.MatchString(p.Name) {
			b.cases = append(b.cases, &program{Program: p})
		}
	}
	links := []string{
		"rtt=20us", "rtt=20us,bw=1Gbps", "rtt=20us,bw=50Mbps", "rtt=100us,bw=10Gbps", "rtt=200us,bw=500Mbps", "rtt=500us", "rtt=500us,bw=100Mbps",
		"rtt=1ms,bw=1Gbps", "rtt=1ms,bw=200Mbps", "rtt=2ms,bw=50Mbps", "rtt=5ms", "rtt=5ms,bw=1Gbps",
	}
	if b.Quick {
		links = []string{links[1], links[4], links[7]}
	}
	for _, text := range links {
		l, err := netem.ParseLink(text)
		if err != nil {
			return err
		}
		if over.MatchString(text) {
			b.links = append(b.links, link{nominal: l})
		}
	}
	if len(b.cases) == 0 || len(b.links) == 0 {
		return fmt.Errorf("nothing to measure: no program matches %q, or no link matches %q", b.match, b.overLinks)
	}
	return nil
}

// record records each program of the measurement.
func (b *bench) record(ctx context.Context) error {
	for _, p := range b.cases {
		if err := b.recordProgram(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// recordProgram records a program locally and remotely, after runs that fill its caches and those of
// the drivers.
func (b *bench) recordProgram(ctx context.Context, p *program) (err error) {
	node := b.rig.Node(deviceNode)
	node.SetLink(netem.Link{})
	if p.home, err = os.MkdirTemp(b.Dir, "home-"); err != nil {
		return err
	}
	for _, way := range []suite.Launcher{suite.Local, b.over(), b.over()} {
		if _, err := b.runOnce(ctx, p, way); err != nil {
			return err
		}
		// The node compiles the run's kernels in the background after it.
		if err := node.WaitIdle(ctx); err != nil {
			return err
		}
	}
	if err := b.recordBoth(ctx, p); err != nil {
		return err
	}
	p.chooseTraces()
	return expect(b, p)
}

// ending reads a trace to its end.
func ending(path string) (*trace.End, error) {
	src, err := opener(path)()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := src.Next(); err != nil {
			if src.End() == nil {
				return nil, fmt.Errorf("%s was cut off: %w", path, err)
			}
			return src.End(), nil
		}
	}
}

// opener returns a function that opens the trace anew each time a prediction reads it.
func opener(path string) overhead.Open {
	return func() (overhead.Source, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return trace.NewReader(strings.NewReader(string(data)))
	}
}
