package bucket

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// A fault is what goes wrong with one commit.
type fault int

const (
	none     fault = iota
	behind         // made, but its answer was lost
	foreign        // somebody else writes first
	broken         // an error, and nothing is made
	unsure         // an error, and it is made
	unspread       // made, and its keys are not written
	nofaults       // how many there are
)

var errInjected = errors.New("injected")

// fakeStore is a bucket's stream in memory, with faults. Several buckets may be
// opened on it.
type fakeStore struct {
	mu   sync.Mutex
	keys map[string]state.Entry
	last uint64
	// record is the last commit, as long as its keys are not written.
	record *state.Commit
	lost   bool // the record's writer fails to write them
	// unreadable says that the next one who reads fails.
	unreadable bool
	// fault says what goes wrong next.
	fault func() fault
	// commits is how many were made.
	commits int
}

func (s *fakeStore) commitCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

func newFakeStore() *fakeStore {
	return &fakeStore{keys: map[string]state.Entry{}, fault: func() fault { return none }}
}

func (s *fakeStore) Commit(_ context.Context, c state.Commit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fault()
	if f == broken {
		return errInjected
	}
	if f == foreign {
		s.last++
		s.keys["foreign"] = state.Entry{Key: "foreign", Value: []byte("1"), Revision: s.last}
	}
	if c.After != s.last {
		return state.ErrConflict
	}
	s.commits++
	s.last++
	s.record, s.lost = &c, f == unspread
	if f == behind {
		return state.ErrBehind
	}
	if f == unsure {
		return errInjected
	}
	return nil
}

func (s *fakeStore) Spread(_ context.Context, c state.Commit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.record == nil || s.last != c.After+1:
		return state.ErrConflict // Somebody else was here.
	case s.lost:
		s.lost = false
		return errInjected
	}
	s.complete()
	return nil
}

// complete writes the keys of the last commit.
func (s *fakeStore) complete() {
	if s.record == nil {
		return
	}
	for _, change := range s.record.Changes {
		s.last++
		s.keys[change.Key] = state.Entry{
			Key: change.Key, Value: change.Value, Revision: s.last, Deleted: change.Deleted, ExpiresMilli: change.ExpiresMilli,
		}
	}
	s.record = nil
}

// spread says whether all keys are written.
func (s *fakeStore) spread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record == nil
}

func (s *fakeStore) Since(ctx context.Context, revision uint64, f func(state.Entry)) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreadable {
		s.unreadable = false
		return revision, errInjected
	}
	if ctx.Err() != nil {
		return revision, ctx.Err()
	}
	if s.record != nil && revision <= s.record.After { // Who begins behind the record does not see it.
		s.complete()
	}
	all := slices.SortedFunc(maps.Values(s.keys), func(a, b state.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, e := range all {
		if e.Revision > revision {
			f(e)
		}
	}
	return max(s.last, revision), nil
}

func (s *fakeStore) Current(_ context.Context, revision uint64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last <= revision, nil
}

func (s *fakeStore) Watch(ctx context.Context, _ uint64, _ func(state.Entry)) error {
	<-ctx.Done()
	return nil
}

func (s *fakeStore) Tidy(context.Context, time.Time) error { return nil }

// content is what the stream says that the keys have.
func (s *fakeStore) content() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for key, e := range s.keys {
		if !e.Deleted && key != "foreign" {
			out[key] = string(e.Value)
		}
	}
	if s.record == nil {
		return out
	}
	for _, c := range s.record.Changes {
		out[c.Key] = string(c.Value)
		if c.Deleted {
			delete(out, c.Key)
		}
	}
	return out
}
