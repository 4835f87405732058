package bucket

import (
	"context"
	"strings"
	"sync"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// Change is a key's new value.
type Change struct {
	Key string
	Entry
	// Deleted means that the key was deleted, at the entry's revision.
	Deleted bool
}

// Watch calls f with the current entries of the keys that begin with prefix, and then with each of
// their changes, in order and from one goroutine, until ctx or the bucket ends. It may coalesce
// changes of a key that follow each other closely. It does not report that a key has expired: the
// entry has the time of its expiry.
func (b *Bucket) Watch(ctx context.Context, prefix string, f func(Change)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := b.submit(ctx, nil); err != nil {
		return err
	}
	now, last := b.snapshot(prefix)
	for _, c := range now {
		f(c)
	}
	var ending sync.WaitGroup
	defer ending.Wait()
	stop := make(chan struct{})
	defer close(stop)
	ending.Go(func() {
		select {
		case <-b.done:
			cancel()
		case <-stop:
		}
	})
	err := b.store.Watch(ctx, last, func(e state.Entry) {
		if strings.HasPrefix(e.Key, prefix) {
			f(Change{Key: e.Key, Entry: Entry{e.Value, e.Revision, e.ExpiresMilli}, Deleted: e.Deleted})
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (b *Bucket) snapshot(prefix string) (now []Change, last uint64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	at := wallClock()
	for key, e := range b.view.keys {
		if strings.HasPrefix(key, prefix) && !e.expired(at) {
			now = append(now, Change{Key: key, Entry: e})
		}
	}
	return now, b.view.last
}
