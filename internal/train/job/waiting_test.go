package job

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
)

// queuedPool has a request wait in the queue, whose place changes, and ends it then.
type queuedPool struct{ twoNodes }

func (p queuedPool) Acquire(_ context.Context, r pool.Request) ([]outboard.Lease, error) {
	busy := p.Devices()[:1]
	busy[0].Grants = []outboard.Grant{{Holder: "east", Program: "job job-first"}}
	for _, position := range []int{2, 2, 1} {
		r.Progress(pool.Waiting{Position: position, Busy: busy, Fit: 2, Free: 1})
	}
	return nil, outboard.Errorf(outboard.Denied, "acquire", "the node was removed")
}

// The reason of a job that waits in the queue names the devices, their holders and the job's place. Its
// lines have it once.
func TestWaitingJobHasAReason(t *testing.T) {
	table := new(recordTable)
	a := newActive(t, Options{Leases: queuedPool{}})
	a.write = table.write
	s := &a.job.Spec
	s.Ranks, s.MinRanks, s.PerDevice, s.Memory = 4, 4, 2, 1<<30
	if err := s.Selector.Set("type=gpu"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.acquire(t.Context()); outboard.KindOf(err) != outboard.Denied {
		t.Fatal(err)
	}
	const want = `waits for 2 device(s) of "type=gpu" with 1GiB each: place 1 in the queue, ` +
		`and 1 of 2 devices that fit is free, leased are east/opencl/0 by node east (job job-first)`
	if got := a.snapshot().Reason; got != want {
		t.Errorf("the reason is\n%s, want\n%s", got, want)
	}
	text, err := os.ReadFile(a.lines.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if lines := string(text); strings.Count(lines, "waits for") != 1 || !strings.Contains(lines, "place 2 in the queue") {
		t.Errorf("the lines of the job are %s", lines)
	}
	a.closeRecord(t.Context())
}
