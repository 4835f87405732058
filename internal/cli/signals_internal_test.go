package cli

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// A process that nohup has started does not handle the end of its terminal; other signals it does.
func TestIgnoredHangup(t *testing.T) {
	all := []os.Signal{syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGHUP}
	if got := withoutIgnored(slices.Clone(all)...); !slices.Equal(got, all) && !signal.Ignored(syscall.SIGHUP) {
		t.Errorf("signals %v, want %v", got, all)
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if got, want := withoutIgnored(slices.Clone(all)...), all[:2]; !slices.Equal(got, want) {
		t.Errorf("signals %v with SIGHUP ignored, want %v", got, want)
	}
}
