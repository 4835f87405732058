package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
)

func (b *bench) makeProfiles() (err error) {
	if b.profiles == "" {
		return nil
	}
	if b.profiles, err = filepath.Abs(b.profiles); err != nil {
		return err
	}
	return os.MkdirAll(b.profiles, 0o755)
}

// printProfiles prints where the processes of this run spent their time.
func (b *bench) printProfiles(ctx context.Context) error {
	slices.Sort(b.profiled)
	for _, path := range b.profiled {
		top := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=20", path)
		out, err := top.Output()
		if err != nil {
			return fmt.Errorf("profile %s: %w", path, err)
		}
		fmt.Fprintf(os.Stderr, "\n%s\n%s", path, out)
	}
	return nil
}

// profile writes a CPU profile to path until stop.
func profile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
