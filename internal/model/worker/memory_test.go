package worker_test

import (
	"log/slog"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// A process that holds more than its memory is ended, and the error says so, also on a machine
// without control groups. The shell's child holds 128 MiB until it is killed.
func TestMemoryIsBounded(t *testing.T) {
	s := &worker.Spawner{Log: slog.New(slog.DiscardHandler)}
	s.Open()
	defer s.Close()
	p, err := s.StartServer("hog", 32<<20, []string{"sh", "-c", "(head -c 128M /dev/zero; sleep 600) | tail -c 256M"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("it ended with %v", err)
	}
}
