package paired

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
)

// Profile returns the file for the CPU profile of the next measurement, "" if no profiles are
// written.
func (r *Run) Profile(name string) string {
	if r.Profiles == "" {
		return ""
	}
	path := filepath.Join(r.Profiles, fmt.Sprintf("%s-%d-%s.pprof", r.section, len(r.profiled), name))
	r.profiled = append(r.profiled, path)
	return path
}

// printProfiles prints the heads of the profiles that the run has written.
func (r *Run) printProfiles(ctx context.Context) error {
	for _, path := range r.profiled {
		out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=30", path).Output()
		if err != nil {
			return fmt.Errorf("profile %s: %w", path, err)
		}
		fmt.Fprintf(os.Stderr, "\n%s\n%s", path, out)
	}
	return nil
}

// WriteProfile writes this process's CPU profile to path until stop is called. It does nothing if
// path is "".
func WriteProfile(path string) (stop func() error, err error) {
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
