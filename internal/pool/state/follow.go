package state

import (
	"context"
	"log/slog"
	"sync"
)

// A Follower keeps somebody's view of the table new. Its lock is the view's: take is
// called under it.
type Follower struct {
	sync.Mutex
	log   *slog.Logger
	apply func(Entry) (news bool, err error)
	next  chan struct{} // closed at the next news
	stop  context.CancelFunc
}

// Follow has take see the table's entries, and later each that changes; it says whether
// that is news for whoever asks the view. Entries that it can't read are logged. Follow
// returns when take has seen all that there is.
func Follow(ctx context.Context, s *State, log *slog.Logger, take func(Entry) (news bool, err error)) (*Follower, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	run, stop := context.WithCancel(context.Background())
	f := &Follower{log: log, apply: take, next: make(chan struct{}), stop: stop}
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
	news := false
	for _, e := range c.Entries {
		one, err := f.apply(e)
		if err != nil {
			f.log.Warn("ignored a record of the pool", "key", e.Key, "error", err)
		}
		news = news || one
	}
	if news {
		close(f.next)
		f.next = make(chan struct{})
	}
}

// Changed is closed at the next news.
func (f *Follower) Changed() <-chan struct{} {
	f.Lock()
	defer f.Unlock()
	return f.next
}

// Close stops following.
func (f *Follower) Close() error {
	f.stop()
	return nil
}
