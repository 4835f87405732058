package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// An interrupted calibration says that it was interrupted, not how its programs ended.
func TestInterruptedCalibration(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(started) // returns when the program has written
		cancel()
	}()
	env := &Env{Helper: []string{"sh", "-c", `echo >"$0"; exec sleep 600`}, Environ: os.Environ()}
	if _, err := env.runCalibration(ctx, nil, started, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
