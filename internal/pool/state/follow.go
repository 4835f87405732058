package state

import (
	"context"
	"log/slog"
	"sync"
)

// A Follower keeps a view of the table up to date. Its lock is the view's: the apply function
// is called under it.
type Follower struct {
	sync.Mutex
	log   *slog.Logger
	apply func(Entry) (changed bool, err error)
	next  chan struct{} // closed at the next change
	stop  context.CancelFunc
}

// Follow calls apply with each entry of the table, and later with each change; apply reports
// whether the entry changed the view. Entries that it cannot read are logged. Follow returns
// when apply has seen the whole table.
func Follow(ctx context.Context, s *State, log *slog.Logger, apply func(Entry) (changed bool, err error)) (*Follower, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	run, stop := context.WithCancel(context.Background())
	f := &Follower{log: log, apply: apply, next: make(chan struct{}), stop: stop}
	watch, cancel := context.WithCancel(run)
	defer context.AfterFunc(ctx, cancel)()
	if err := s.Watch(watch, f.applyChange); err != nil {
		stop()
		return nil, err
	}
	return f, nil
}

func (f *Follower) applyChange(c Change) {
	f.Lock()
	defer f.Unlock()
	changed := false
	for _, e := range c.Entries {
		applied, err := f.apply(e)
		if err != nil {
			f.log.Warn("ignored a record of the pool", "key", e.Key, "error", err)
		}
		changed = changed || applied
	}
	if changed {
		close(f.next)
		f.next = make(chan struct{})
	}
}

// Changed returns a channel that is closed at the next change of the view.
func (f *Follower) Changed() <-chan struct{} {
	f.Lock()
	defer f.Unlock()
	return f.next
}

// Close stops the follower.
func (f *Follower) Close() error {
	f.stop()
	return nil
}
