package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// errCorrupt says that a log is corrupt.
var errCorrupt = errors.New("the log can't be understood")

// errFenced says that another node has appended to the execution's log.
var errFenced = errors.New("another node has the execution")

// flush appends the recordable entries and performs their actions. It reports false when the
// execution has left this node or ended.
func (r *executor) flush() bool {
	for {
		r.startEarly()
		batch := r.recorder.recordable()
		if len(batch) == 0 {
			return true
		}
		err := r.recorder.record(r.ctx, batch)
		switch {
		case errors.Is(err, state.ErrConflict):
			err = r.reload()
		case err != nil && permanent(err) && r.ctx.Err() == nil:
			err = r.failUnrecordable(err)
		}
		switch {
		case errors.Is(err, errFenced):
			r.fenced = true
			r.e.metrics.lost.Inc()
			r.e.log.Info("an execution went to another node", "execution", r.id)
			return false
		case err != nil:
			if r.ctx.Err() == nil {
				r.e.log.Error("record an execution", "execution", r.id, "error", err)
			}
			return false
		}
		r.runPendingActions()
		if r.result != nil {
			return false
		}
	}
}

// failUnrecordable ends an execution whose event the log refuses permanently.
func (r *executor) failUnrecordable(cause error) error {
	r.e.log.Error("record an execution", "execution", r.id, "error", cause)
	if r.recorder.soleFault() {
		return cause
	}
	if err := r.reload(); err != nil || r.result != nil {
		return err
	}
	r.recorder.pendingActions = nil
	r.conclude(core.Finished{Status: core.Faulted, Error: &dsl.Error{
		Type: dsl.ErrorRuntime, Status: 507, Title: "the execution can't be recorded", Detail: truncate(cause.Error()),
	}})
	return nil
}

// reload replays the log after a conflict. Another node may have cancelled the execution, or taken
// it over: then it returns errFenced.
func (r *executor) reload() error {
	records, err := retry(r.ctx, &r.e.failing, "read a log", func() ([]state.Record, error) { return r.e.opts.Log.Read(r.ctx, r.recorder.writer.key) })
	if err != nil {
		return err
	}
	events, err := decode(records)
	if err != nil {
		return err
	}
	if len(events) == 0 || owner(events) != r.e.writer {
		return errFenced
	}
	r.restart(events, records[len(records)-1].Seq)
	return nil
}

// restart discards unrecorded events, and continues from the log. Results of running activities are
// ignored.
func (r *executor) restart(events []core.Event, seq uint64) {
	cause := errRestarted
	if events[len(events)-1].Finished != nil {
		cause = errStopped
	}
	r.active.cancelBelow("", cause)
	r.resume(events, seq)
}

// resume rebuilds the state from the records, and requests the pending actions again. Only events
// that changed the state were recorded. If one would not change it now, the workflow is another
// one, or is interpreted in another way, and continuing could repeat steps.
func (r *executor) resume(events []core.Event, seq uint64) {
	r.x = core.New(string(r.id), r.workflow)
	r.values.reset()
	fits := true
	for _, event := range events {
		wanted := event.TakenOver != nil || event.Finished != nil || r.x.Wants(event)
		_, err := r.x.Apply(event)
		fits = fits && wanted && err == nil
		r.values.addRecorded(event)
	}
	r.clock.set(r.x.Now())
	r.recorder.reset(seq)
	// What the log says is held, whatever the limit: an earlier node has reserved it.
	r.e.opts.Held.Adjust(int64(r.x.Held()) - r.held)
	r.held = int64(r.x.Held())
	switch last := events[len(events)-1]; {
	case last.Finished != nil:
		r.result = last.Finished
	case !fits:
		r.conclude(core.Finished{Status: core.Faulted, Error: &dsl.Error{
			Type: dsl.ErrorConfiguration, Status: 409, Title: "the log is not that of this workflow",
			Detail: "what is recorded would not happen: was the workflow changed under the same version?",
		}})
	case r.x.Status().Over():
		r.conclude(r.x.Result())
	default:
		r.recorder.pendingActions = []deferredActions{{actions: r.x.Pending(), at: time.Now()}}
	}
}

// owner returns the node that recorded an execution's start or took it over last.
func owner(events []core.Event) string {
	by := ""
	for _, e := range events {
		if e.Started != nil || e.TakenOver != nil {
			by = e.By
		}
	}
	return by
}

func decode(records []state.Record) ([]core.Event, error) {
	events := make([]core.Event, len(records))
	for i, record := range records {
		if err := json.Unmarshal(record.Data, &events[i]); err != nil {
			return nil, fmt.Errorf("read record %d of %s: %w: %w", record.Seq, record.Key, errCorrupt, err)
		}
	}
	return events, nil
}

// finished reports whether the last record ends the execution.
func finished(records []state.Record) bool {
	if len(records) == 0 {
		return false
	}
	var last core.Event
	err := json.Unmarshal(records[len(records)-1].Data, &last)
	return err == nil && last.Finished != nil
}
