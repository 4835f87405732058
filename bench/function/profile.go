package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
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

// profile writes a CPU profile until stop, where one is wanted.
func (b *bench) profile() (stop func() error, err error) {
	if b.profiles == "" {
		return func() error { return nil }, nil
	}
	path := filepath.Join(b.profiles, fmt.Sprintf("%s-%d.pprof", b.section, len(b.profiled)))
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b.profiled = append(b.profiled, path)
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// printProfiles prints where this run spent its time.
func (b *bench) printProfiles(ctx context.Context) error {
	for _, path := range b.profiled {
		out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=30", path).Output()
		if err != nil {
			return fmt.Errorf("profile %s: %w", path, err)
		}
		fmt.Fprintf(os.Stderr, "\n%s\n%s", path, out)
	}
	return nil
}
