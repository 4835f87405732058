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

// Profile is where something that is measured next writes its CPU profile, "" for
// nowhere.
func (r *Run) Profile(name string) string {
	if r.Profiles == "" {
		return ""
	}
	path := filepath.Join(r.Profiles, fmt.Sprintf("%s-%d-%s.pprof", r.section, len(r.profiled), name))
	r.profiled = append(r.profiled, path)
	return path
}

// printProfiles prints where the run spent its time.
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

// WriteProfile writes this process's CPU profile to path until stop, nothing where path
// is "".
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
