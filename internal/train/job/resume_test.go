package job

import (
	"context"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// fullPool never grants a device.
type fullPool struct{ busyPool }

func (fullPool) Acquire(ctx context.Context, _ pool.Request) ([]outboard.Lease, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A job may be resumed as soon as its record says that it has ended: Resume waits until it is no
// longer driven, and the record does not say that a job waits which nothing drives.
func TestResumeOfAJobThatStillEnds(t *testing.T) {
	m, err := Open(t.Context(), Options{Self: "harbour", State: statetest.Open(t), Leases: fullPool{}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	j := client.Job{
		ID: "job-abc", Node: "harbour", State: client.JobCanceled, Created: time.Now(), Spec: client.JobSpec{Ranks: 1, PerDevice: 1, MinRanks: 1, Args: []string{"x"}},
	}
	if err := m.write(t.Context(), &j); err != nil {
		t.Fatal(err)
	}
	ending := &activeJob{manager: m, record: m.record(&j), done: make(chan struct{}), ending: func() bool { return true }}
	m.mu.Lock()
	m.active[j.ID] = ending
	m.mu.Unlock()
	resumed := make(chan error, 1)
	go func() { resumed <- m.Resume(t.Context(), j.ID) }()
	for range 10 { // These writes take about as long as Resume would to fail.
		if err := m.write(t.Context(), &j); err != nil {
			t.Fatal(err)
		}
	}
	m.mu.Lock()
	delete(m.active, j.ID)
	m.mu.Unlock()
	close(ending.done)
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	if got, err := m.Get(j.ID); err != nil || got.State != client.JobWaiting {
		t.Errorf("the job is %s, %v", got.State, err)
	}
	if err := m.Resume(t.Context(), j.ID); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("resumed twice: %v", err)
	}
	// Cancel does not wait for the end of the job, Resume does.
	if err := m.Cancel(j.ID); err != nil {
		t.Errorf("the resumed job can't be canceled: %v", err)
	}
	if err := m.Resume(t.Context(), j.ID); err != nil {
		t.Errorf("the canceled job can't be resumed: %v", err)
	}
}
