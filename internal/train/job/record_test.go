package job

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A recordTable is a table of one record.
type recordTable struct {
	away   atomic.Bool // does not answer
	full   atomic.Bool // refuses
	writes atomic.Int64
	step   atomic.Int64 // of the checkpoint written last
}

func (w *recordTable) write(ctx context.Context, j *client.Job) error {
	w.writes.Add(1)
	if w.full.Load() {
		return outboard.Errorf(outboard.Exhausted, "write", "too many bytes")
	}
	if w.away.Load() {
		<-ctx.Done()
		return &outboard.Error{Kind: outboard.Unreachable, Err: ctx.Err()}
	}
	if j.Checkpoint != nil {
		w.step.Store(int64(j.Checkpoint.Step))
	}
	return nil
}

func newRecord() (*recordTable, *record) {
	w := new(recordTable)
	return w, &record{write: w.write, log: slog.New(slog.DiscardHandler)}
}

func savedAt(step int) func(*client.Job) {
	return func(j *client.Job) { j.Checkpoint = &client.JobCheckpoint{Step: step} }
}

// A pool's state that is away for a while, as while it moves to three copies, costs a job its time,
// not its checkpoint; what the job is can be read meanwhile.
func TestRecordIsWrittenWhenTheTableIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newRecord()
		w.away.Store(true)
		updated := make(chan error)
		go func() { updated <- r.update(t.Context(), savedAt(3)) }()
		synctest.Wait()
		if j := r.snapshot(); j.Checkpoint == nil || j.Checkpoint.Step != 3 {
			t.Errorf("the job is %+v", j)
		}
		time.Sleep(time.Minute)
		w.away.Store(false)
		if err := <-updated; err != nil || w.step.Load() != 3 {
			t.Errorf("%v, step %d is written", err, w.step.Load())
		}
	})
}

// Changes during a write are written together by the next one.
func TestChangesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newRecord()
		w.away.Store(true)
		last := 0
		for step := range 100 {
			last = r.change(savedAt(step))
		}
		w.away.Store(false)
		if err := r.await(t.Context(), last); err != nil || w.step.Load() != 99 || w.writes.Load() > 2 {
			t.Errorf("%v, step %d is written after %d writes", err, w.step.Load(), w.writes.Load())
		}
	})
}

// A version that the table refuses fails at once, and a later one is written.
func TestRefusedRecordFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newRecord()
		w.full.Store(true)
		if err := r.update(t.Context(), savedAt(1)); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("written: %v", err)
		}
		w.full.Store(false)
		if err := r.update(t.Context(), savedAt(2)); err != nil || w.step.Load() != 2 {
			t.Errorf("%v, step %d is written", err, w.step.Load())
		}
	})
}

// The end of a job is recorded however long the table is away, unless the node stops.
func TestEndIsRecorded(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, r := newRecord()
			w.away.Store(true)
			life, stop := context.WithCancel(t.Context())
			defer stop()
			r.change(savedAt(5))
			if stops {
				stop()
			}
			time.AfterFunc(time.Minute, func() { w.away.Store(false) })
			began := time.Now()
			r.closeRecord(life)
			if took := time.Since(began); stops != (w.step.Load() == 0) || stops != (took <= 2*writeLimit) {
				t.Errorf("stops %t: step %d is written after %v", stops, w.step.Load(), took)
			}
			time.Sleep(2 * writeLimit) // A write may be in progress.
			writes := w.writes.Load()
			time.Sleep(time.Hour)
			if w.writes.Load() != writes {
				t.Error("the record is still written")
			}
		})
	}
}

// Changes that follow each other often are written at most once in an interval, and the last one always.
func TestFrequentChangesAreWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newRecord()
		for step := range 60 {
			r.changeOften(func(j *client.Job) bool {
				savedAt(step + 1)(j)
				return true
			})
			time.Sleep(time.Second)
		}
		time.Sleep(progressInterval)
		if n := w.writes.Load(); w.step.Load() != 60 || n < 2 || n > 1+60/int64(progressInterval/time.Second) {
			t.Errorf("step %d is written after %d writes", w.step.Load(), n)
		}
		r.changeOften(func(*client.Job) bool { return false })
		r.changeOften(func(j *client.Job) bool {
			savedAt(61)(j)
			return true
		})
		if r.closeRecord(t.Context()); w.step.Load() != 61 {
			t.Errorf("the end of the record leaves step %d", w.step.Load())
		}
	})
}

// Changes that come while the table is slow are written no more often, and do not delay what waits.
func TestFrequentChangesDuringWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newRecord()
		r.write = func(ctx context.Context, j *client.Job) error {
			time.Sleep(time.Second)
			return w.write(ctx, j)
		}
		const changes = 600
		for step := range changes {
			r.changeOften(func(j *client.Job) bool {
				savedAt(step)(j)
				return true
			})
			time.Sleep(progressInterval / 50)
		}
		if n := w.writes.Load(); n > 1+changes/50 {
			t.Errorf("%d changes in %v are written %d times", changes, progressInterval*changes/50, n)
		}
		if err := r.update(t.Context(), savedAt(changes)); err != nil || w.step.Load() != changes {
			t.Errorf("%v, step %d is written", err, w.step.Load())
		}
		r.closeRecord(t.Context())
	})
}
