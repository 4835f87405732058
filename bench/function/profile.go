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

// profile runs do, and writes a CPU profile of it where one is wanted.
func (b *bench) profile(section string, do func() error) error {
	if b.profiles == "" {
		return do()
	}
	path := filepath.Join(b.profiles, section+".pprof")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	b.profiled = append(b.profiled, path)
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
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
