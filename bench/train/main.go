// Command train measures training jobs: equality with gloo, collectives against gloo and against
// the bound of the network, the planner's plans and predictions, and the loss of ranks. It writes
// docs/bench/training.md and training.json.
//
// Ranks are Python processes that `outboard train` starts, on this machine or on nodes that are
// `outboard up` processes in network namespaces with token buckets. Equality is computed with real
// gradients; the times of pipelines are those of layers that sleep, so that ranks do not compete
// for the machine's cores.
//
// BENCH_QUICK=1 keeps it near two minutes: few and short turns.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard/bench/paired"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == storeArg {
		os.Exit(helper(serveStore, os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == rankArg {
		os.Exit(helper(runStoreRank, os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == exchangeArg {
		os.Exit(helper(runExchange, os.Args[2]))
	}
	b := &bench{}
	b.Flags()
	flag.StringVar(&b.binary, "outboard", "bin/outboard", "the program to measure")
	flag.StringVar(&b.python, "python", "/usr/bin/python3", "a Python with PyTorch")
	os.Exit(paired.Main(b.run))
}

type bench struct {
	paired.Run
	binary, python string
}

func (b *bench) sections() []paired.Section {
	return []paired.Section{
		{Name: "equality", Run: b.equality},
		{Name: "allreduce", Run: b.allReduce},
		{Name: "links", Run: b.links},
		{Name: "loss", Run: b.loss},
		{Name: "store", Run: b.store},
		{Name: "loading", Run: b.loading},
		{Name: "planner", Run: b.planner},
		{Name: "plans", Run: b.plans},
		{Name: "joint", Run: b.joint},
		{Name: "order", Run: b.order},
		{Name: "steps", Run: b.steps},
		{Name: "accumulation", Run: b.accumulation},
		{Name: "threads", Run: b.threads},
		{Name: "kills", Run: b.kills},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	end, err := b.Begin(ctx, "training",
		"Ranks, nodes and the network's token buckets share the machine's cores. The bound of an all-reduce is "+
			"2(1-1/n)s/w for n ranks, s bytes and w bytes per second.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := b.Merge(); err != nil {
		return err
	}
	return b.Measure(ctx, b.sections())
}

// note adds a paragraph to the report.
func (b *bench) note(text string) { b.Report.Notes = append(b.Report.Notes, text) }
