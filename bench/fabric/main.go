package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/outboard-run/outboard/bench/paired"
)

func main() {
	if status, is := roleStatus(); is {
		os.Exit(status)
	}
	if text := os.Getenv(roleVariable); text != "" {
		os.Exit(roleMain(text))
	}
	b := &bench{launch: launchProcess}
	b.Flags()
	b.ProfileFlag()
	flag.StringVar(&b.cell, "cell", "", "of the sections peers and transports, measure only the cells whose title has this in it")
	os.Exit(paired.Main(b.run))
}

type bench struct {
	paired.Run
	launch launch
	envoy  string // the path of the program, once it is installed
	cell   string // only the cells whose title has this in it
}

// sections returns the sections, in the order in which they are measured.
func (b *bench) sections() []paired.Section {
	return []paired.Section{
		{Name: "unary-64", Run: func(ctx context.Context) error { return b.unary(ctx, 64) }},
		{Name: "unary-4k", Run: func(ctx context.Context) error { return b.unary(ctx, 4<<10) }},
		{Name: "unary-256k", Run: func(ctx context.Context) error { return b.unary(ctx, large) }},
		{Name: "tls-1", Run: func(ctx context.Context) error { return b.network(ctx, 1) }},
		{Name: "tls-64", Run: func(ctx context.Context) error { return b.network(ctx, 64) }},
		{Name: "chain", Run: b.chain},
		{Name: "shop", Run: b.shop},
		{Name: "swaps", Run: b.swaps},
		{Name: "upgrades", Run: b.upgrades},
		{Name: "balance", Run: b.balance},
		{Name: "transfer", Run: b.transfer},
		{Name: "peers-unary", Run: func(ctx context.Context) error { return b.peers(ctx, unaryCells) }},
		{Name: "peers-streams", Run: func(ctx context.Context) error { return b.peers(ctx, streamCells) }},
		{Name: "transports", Run: b.transports},
		{Name: "sizes", Run: b.sizes},
		{Name: "held", Run: b.heldSection},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	end, err := b.Begin(ctx, "fabric", notes()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := b.Merge(); err != nil {
		return err
	}
	return b.Measure(ctx, b.sections())
}

// row adds a row, with the reason why it falls short, if that is known.
func (b *bench) row(r paired.Row) {
	if r.Reason == "" {
		r = r.Because(reasonFor(r.Name))
	}
	b.Row(r)
}

func notes() []string {
	return []string{
		"The processes are real and separate, share the machine's cores, and have the default GOMAXPROCS. Times of calls are medians of each turn's median; " +
			"CPU is user and system time of all processes that the call passes, and a context switch is a thread of theirs that goes to sleep. All clients pass a context that can be cancelled. Both stacks have their default windows and buffers.",
		"The proxy is a grpc-go server and client in one process with a codec that does not decode, one connection to the server, and an access list, a token bucket " +
			"and a counter. The managed process has an access list, a token bucket and a concurrency limit, and counts each call by method, peer and policy.",
	}
}
