package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
)

// othersEstimate is about how long the section of other programs takes: 13 runs of each of four.
const othersEstimate = 100 * time.Second

// otherPrograms are of other kinds than those of the table: scripts that chain events, map images and
// use two threads, and a filter that launches thousands of kernels for an image. The model was
// developed without a measurement of their times.
func otherPrograms() (all []*program, err error) {
	for _, name := range []string{"chains", "pictures", "threads"} {
		script, err := filepath.Abs(filepath.Join("test", "e2e", "testdata", "traced", name+".py"))
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(script); err != nil {
			return nil, err
		}
		all = append(all, &program{Program: suite.Program{
			Name: "pyopencl " + name, Args: []string{"env", "PYOPENCL_NO_CACHE=1", "/usr/bin/python3", script},
		}})
	}
	return append(all, &program{Program: suite.FFmpeg("nlmeans_opencl", 1)}), nil
}

// othersLinks are the links over which other programs run.
func othersLinks() []link {
	return []link{
		{netem.Link{RTT: 100 * time.Microsecond, BitsPerSecond: 1e9}},
		{netem.Link{RTT: 500 * time.Microsecond, BitsPerSecond: 100e6}},
		{netem.Link{RTT: 5 * time.Millisecond}},
	}
}

// others predicts programs that are in no other section over three links.
func (b *bench) others(ctx context.Context) error {
	programs, err := otherPrograms()
	if err != nil {
		return err
	}
	links := othersLinks()
	var results []*result
	var local, remote []sample
	for _, p := range programs[:b.Rounds(len(programs), 1)] {
		if err := b.recordProgram(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		of, err := b.measureProgram(ctx, p, links)
		if err != nil {
			return err
		}
		for _, r := range of {
			local = append(local, errorOf(r.error(&r.local), r.middle().disturbed))
			remote = append(remote, errorOf(r.error(&r.remote), r.middle().disturbed))
		}
		results = append(results, of...)
	}
	b.reportSamples("other programs, predicted from the trace of a local run: median error", local, median(paired.Goal{Max: 5}))
	b.reportSamples("other programs, predicted from the trace of a local run: greatest error", local, quantile(1, 10))
	b.reportSamples("other programs, predicted from the trace of a remote run: median error", remote, median(paired.Goal{Max: 3}))
	b.Report.Notes = append(b.Report.Notes, "Other programs:\n\n"+caseTable(results))
	return nil
}
