package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
)

const (
	// maxBatch and maxBatchBytes bound one append.
	maxBatch      = 64
	maxBatchBytes = 256 << 10
)

// recorder holds the events of one execution until the log has them, and the actions that follow.
type recorder struct {
	writer         logWriter
	appends        prometheus.Histogram // how long appends took, in seconds
	entries        []*entry             // events that were applied and are not recorded
	saving         int                  // entries among them whose value is being saved
	pendingActions []deferredActions    // the actions of recorded events
}

// entry is an event that was applied and is not recorded, with the actions that are deferred until
// it is.
type entry struct {
	event   core.Event
	saving  bool
	actions []core.Action
	// at is the time of the event, for the metrics.
	at time.Time
}

// deferredActions are the actions of a recorded event, and the time of the event.
type deferredActions struct {
	actions []core.Action
	at      time.Time
}

// reset discards everything that the log, which ends at seq, does not have.
func (q *recorder) reset(seq uint64) {
	q.writer.seq, q.entries, q.pendingActions, q.saving = seq, nil, nil, 0
}

// soleFault reports whether the only entry ends the execution with an error.
func (q *recorder) soleFault() bool {
	if len(q.entries) != 1 {
		return false
	}
	f := q.entries[0].event.Finished
	return f != nil && f.Status == core.Faulted
}

// recordable returns the longest prefix of the entries that may be recorded now.
func (q *recorder) recordable() []*entry {
	size := 0
	for i, entry := range q.entries {
		if s := entry.event.Step; s != nil {
			size += len(s.Data)
		}
		if entry.saving || i >= maxBatch || i > 0 && size > maxBatchBytes {
			return q.entries[:i]
		}
	}
	return q.entries
}

// record appends entries to the log. It retries until the result is known or ctx ends.
func (q *recorder) record(ctx context.Context, batch []*entry) error {
	data := make([][]byte, len(batch))
	for i, entry := range batch {
		var err error
		if data[i], err = json.Marshal(entry.event); err != nil {
			return fmt.Errorf("write the record: %w", err)
		}
	}
	began := time.Now()
	seq, err := q.writer.append(ctx, data)
	q.appends.Observe(time.Since(began).Seconds())
	if err != nil {
		return err
	}
	q.writer.seq = seq
	q.commit(len(batch))
	return nil
}

// commit makes the actions of the first n entries pending.
func (q *recorder) commit(n int) {
	for _, entry := range q.entries[:n] {
		q.pendingActions = append(q.pendingActions, deferredActions{entry.actions, entry.at})
	}
	q.entries = q.entries[n:]
}

// logWriter appends to the log of one execution. Every append names the record that it follows,
// which fences off a node that has lost the execution.
type logWriter struct {
	log Log
	key string
	seq uint64 // of the last record
}

// append appends records and returns the sequence of the last one. It retries until the result is
// known.
func (w *logWriter) append(ctx context.Context, data [][]byte) (uint64, error) {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		seq, err := w.log.Append(ctx, w.key, w.seq, data...)
		switch {
		case err == nil:
			return seq, nil
		case errors.Is(err, state.ErrConflict), permanent(err):
			return 0, err
		}
		if !sleep(ctx, pause) {
			return 0, errors.Join(ctx.Err(), err)
		}
		// The records may have been stored, and the acknowledgement lost.
		if seq, ok := w.findAppended(ctx, data); ok {
			return seq, nil
		}
	}
}

// findAppended looks for records whose acknowledgement was lost. Records contain their writer and
// time, so equal ones are the same.
func (w *logWriter) findAppended(ctx context.Context, data [][]byte) (uint64, bool) {
	records, err := w.log.Read(ctx, w.key)
	if err != nil {
		return 0, false
	}
	for len(records) > 0 && records[0].Seq <= w.seq {
		records = records[1:]
	}
	if len(records) != len(data) {
		return 0, false
	}
	for i, record := range records {
		if !bytes.Equal(record.Data, data[i]) {
			return 0, false
		}
	}
	return records[len(records)-1].Seq, true
}
