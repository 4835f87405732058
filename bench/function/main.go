package main

import (
	"context"
	"errors"
	"os"

	"github.com/outboard-run/outboard/bench/paired"
)

func main() {
	if text := os.Getenv(roleVariable); text != "" {
		os.Exit(runRole(text))
	}
	b := &bench{launch: launchProcess}
	b.Flags()
	b.ProfileFlag()
	os.Exit(paired.Main(b.run))
}

type bench struct {
	paired.Run
	launch launch
	guests guests
}

// sections returns the sections in the order in which they are measured.
func (b *bench) sections() []paired.Section {
	return []paired.Section{
		{Name: "http", Run: b.http},
		{Name: "start", Run: b.start},
		{Name: "checks", Run: b.checks},
		{Name: "chain", Run: b.chain},
		{Name: "thumbnails", Run: b.thumbnails},
		{Name: "enrollment", Run: b.enrollment},
		{Name: "instances", Run: b.instances},
		{Name: "handover", Run: b.handover},
		{Name: "launch", Run: b.launchTimes},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	end, err := b.Begin(ctx, "function", notes()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	b.guests.dir = b.Dir
	if b.Only == "" {
		if err := b.guests.build(ctx, allGuests()); err != nil {
			return err
		}
	}
	return b.Measure(ctx, b.sections())
}

func notes() []string {
	return []string{
		"Functions are Go's own WebAssembly (GOOS=wasip1), and begin with fresh state for each request. The plain instance is the engine, wazero, with the module " +
			"as it was built and with what a call needs of the host.",
		"Requests go through a tenant's process with all its parts, and bring the pool's state of one node along; that process, the native handler and the clients " +
			"are one process on the same cores.",
	}
}
