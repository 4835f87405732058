package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// idleLimit is how long the table may be silent before a watcher checks whether it missed the last
// change. Heartbeats make silence rare.
const idleLimit = 5 * time.Second

// A Change is a set of changed entries.
type Change struct {
	Entries []Entry
	// Seq is the revision up to which the watcher has seen the table.
	Seq uint64
}

// watcher follows the table: a snapshot, then each change in order. When a change is missing
// it reads a new snapshot and reports the difference.
type watcher struct {
	s      *State
	view   map[string]Entry
	seq    uint64
	notify func(Change)
}

// Watch calls notify with the whole table and then with every change, in order and from one
// goroutine at a time, until ctx or the state ends. It returns after the first snapshot.
func (s *State) Watch(ctx context.Context, notify func(Change)) error {
	w := &watcher{s: s, view: make(map[string]Entry), notify: notify}
	changes := make(chan *nats.Msg, 4096)
	sub, err := s.nc.ChanSubscribe(changesPrefix+">", changes)
	if err != nil {
		return unreachable("watch the pool's state", err)
	}
	if err := w.resync(ctx); err != nil {
		return errors.Join(err, sub.Unsubscribe())
	}
	ctx, cancel := context.WithCancel(ctx)
	s.running.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.done:
			cancel() // Ends a resync under way.
		}
	})
	s.running.Go(func() {
		defer cancel()
		w.run(ctx, changes)
		// The connection may be closed already, which ends the subscription too.
		_ = sub.Unsubscribe()
	})
	return nil
}

func (w *watcher) run(ctx context.Context, changes <-chan *nats.Msg) {
	idle := time.NewTimer(idleLimit)
	defer idle.Stop()
	for {
		var missed bool
		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			missed = true
		case msg := <-changes:
			missed = !w.apply(msg)
		}
		if missed {
			// An error means that ctx ended, or that the table does not answer: the next round
			// tries again.
			if err := w.resync(ctx); err != nil && ctx.Err() == nil {
				w.s.log.Debug("watch the pool's state", "error", err)
			}
		}
		idle.Reset(idleLimit)
	}
}

// apply reports one change. It returns false when an earlier change is missing.
func (w *watcher) apply(msg *nats.Msg) bool {
	entry, err := decodeEntry(msg)
	if err != nil {
		return false
	}
	switch {
	case entry.Revision <= w.seq:
		return true
	case entry.Revision > w.seq+1:
		return false
	}
	w.seq = entry.Revision
	w.store(entry)
	w.notify(Change{Entries: []Entry{entry}, Seq: w.seq})
	return true
}

func (w *watcher) store(e Entry) {
	if e.Deleted {
		delete(w.view, e.Key)
		return
	}
	w.view[e.Key] = e
}

// resync reads the whole table and reports the difference.
func (w *watcher) resync(ctx context.Context) error {
	entries, last, err := w.s.snapshot(ctx)
	if err != nil {
		return err
	}
	change := Change{}
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		seen[e.Key] = true
		if have, ok := w.view[e.Key]; e.Revision > have.Revision && (ok || !e.Deleted) {
			w.store(e)
			change.Entries = append(change.Entries, e)
		}
	}
	for key, e := range w.view {
		// A copy that lags knows no key that was written after its last change.
		if !seen[key] && e.Revision <= last {
			delete(w.view, key)
			change.Entries = append(change.Entries, Entry{Key: key, Revision: e.Revision, Deleted: true, Expired: true})
		}
	}
	w.seq = max(w.seq, last)
	change.Seq = w.seq
	w.notify(change)
	return nil
}

// snapshot reads all entries, in the order of their revisions, from any copy of
// the table, and the last revision among them.
func (t table) snapshot(ctx context.Context) (entries []Entry, last uint64, err error) {
	err = t.pages(ctx, directGet, keyPrefix+">", func(m *nats.Msg) (uint64, error) {
		e, err := decodeEntry(m)
		entries, last = append(entries, e), e.Revision
		return e.Revision, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read the pool's state: %w", err)
	}
	return entries, last, nil
}
