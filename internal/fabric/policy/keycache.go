package policy

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// keyCache holds one value per key, sharded, and evicts the least recently used key that is
// not pinned.
type keyCache[T any] struct {
	most   atomic.Int64 // entries per shard
	seed   maphash.Seed
	fresh  func(now time.Time) *T
	shards [keyCacheShards]keyCacheShard[T]
}

const keyCacheShards = 8

type keyCacheShard[T any] struct {
	mu      sync.Mutex
	entries map[string]*entry[T]
	ring    entry[T] // list of the entries; ring.next is the most recently used
	_       [64]byte
}

type entry[T any] struct {
	value      *T
	key        string
	pins       int
	shard      *keyCacheShard[T]
	next, prev *entry[T]
}

func newKeyCache[T any](most int, fresh func(now time.Time) *T) *keyCache[T] {
	k := &keyCache[T]{seed: maphash.MakeSeed(), fresh: fresh}
	k.limit(most)
	for i := range k.shards {
		s := &k.shards[i]
		s.entries = map[string]*entry[T]{}
		s.ring.next, s.ring.prev = &s.ring, &s.ring
	}
	return k
}

func (k *keyCache[T]) limit(most int) { k.most.Store(int64(most+keyCacheShards-1) / keyCacheShards) }

func (k *keyCache[T]) shard(key string) *keyCacheShard[T] {
	return &k.shards[maphash.String(k.seed, key)%keyCacheShards]
}

// get returns the value of the key, creating it if necessary.
func (k *keyCache[T]) get(key string, now time.Time) *T {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return k.find(s, key, now).value
}

// pin is like get, and prevents the eviction of the key until unpin.
func (k *keyCache[T]) pin(key string, now time.Time) *entry[T] {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := k.find(s, key, now)
	e.pins++
	return e
}

func (k *keyCache[T]) unpin(e *entry[T]) {
	s := e.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	e.pins--
	k.trim(s)
}

func (k *keyCache[T]) find(s *keyCacheShard[T], key string, now time.Time) *entry[T] {
	e := s.entries[key]
	if e == nil {
		key = strings.Clone(key) // it may be a part of something large
		e = &entry[T]{value: k.fresh(now), key: key, shard: s}
		s.entries[key] = e
		s.ring.push(e)
		k.trim(s)
	} else if s.ring.next != e {
		e.unlink()
		s.ring.push(e)
	}
	return e
}

// trim evicts unpinned entries down to the limit. The most recently used entry stays.
func (k *keyCache[T]) trim(s *keyCacheShard[T]) {
	for e := s.ring.prev; int64(len(s.entries)) > k.most.Load() && e != s.ring.next && e != &s.ring; {
		older := e
		e = e.prev
		if older.pins == 0 {
			older.unlink()
			delete(s.entries, older.key)
		}
	}
}

func (k *keyCache[T]) len() int {
	n := 0
	for i := range k.shards {
		k.shards[i].mu.Lock()
		n += len(k.shards[i].entries)
		k.shards[i].mu.Unlock()
	}
	return n
}

func (e *entry[T]) push(after *entry[T]) {
	after.next, after.prev = e.next, e
	e.next.prev = after
	e.next = after
}

func (e *entry[T]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (k *keyCache[T]) each(f func(*T)) {
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			f(e.value)
		}
		s.mu.Unlock()
	}
}

func (k *keyCache[T]) eachKey(f func(key string, v *T)) {
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		for key, e := range s.entries {
			f(key, e.value)
		}
		s.mu.Unlock()
	}
}
