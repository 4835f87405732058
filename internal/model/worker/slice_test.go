package worker_test

import (
	"log/slog"
	"testing"

	"github.com/outboard-run/outboard/internal/model/worker"
	"github.com/outboard-run/outboard/internal/timeslice"
)

// A server does not inherit the short time slices of the node that starts it.
func TestServerHasLongSlices(t *testing.T) {
	if timeslice.Set(timeslice.Short) != nil || timeslice.Current() != timeslice.Short {
		t.Skip("the kernel has no time slices")
	}
	defer func() { _ = timeslice.Set(0) }()
	s := &worker.Spawner{Log: slog.New(slog.DiscardHandler)}
	s.Open()
	defer s.Close()
	p, err := s.StartServer("sleeper", 0, []string{"sleep", "600"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		p.Kill()
		_ = p.Wait()
	}()
	if slice := timeslice.Of(p.(interface{ PID() int }).PID()); slice == timeslice.Short {
		t.Errorf("the server has slices of %v", slice)
	}
}
