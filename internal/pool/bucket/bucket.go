// Package bucket is a key-value bucket of an app, whose transactions are decided
// in memory by one owner and committed many at a time.
//
// Every open bucket is an owner: it holds all keys in memory, evaluates the queued
// transactions against them one after the other, and commits their changes together (group
// commit) to the bucket's stream in the pool's state by compare-and-swap on the stream's
// revision. After a conflict the owner reads the changes of other owners and evaluates
// again (optimistic concurrency control), so several owners are slower than one and as
// correct. The stream is a NATS key-value bucket that NATS's own tools can read; a key that
// several transactions of a commit change is written once.
//
// A transaction is committed when the record of its commit is stored. Every owner sees it
// from then on; the messages of the single keys, which NATS's tools and Watch read, follow
// at once. Should the owner's process die between the two, the next reader writes them
// (log replay).
//
// Transactions and reads are linearizable: when a commit has nothing to write, its owner
// asks the stream's leader whether its view is current.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/quota"
)

// Options says which bucket to open.
type Options struct {
	State *state.State
	// Tenant, App and Name are words of letters, digits, "-" and "_" that do not
	// begin or end with "-".
	Tenant, App, Name string
	// MaxBytes bounds the memory of the bucket's keys and values, 256 MiB by default.
	MaxBytes int64
	// Budget bounds the buckets of the tenant together; nil means no limit.
	Budget *quota.Budget
	Logger *slog.Logger
}

func (o *Options) setDefaults() {
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	if o.State == nil {
		return outboard.Errorf(outboard.Invalid, "open bucket", "no state")
	}
	for _, word := range []string{o.Tenant, o.App, o.Name} {
		if !isWord(word) {
			return outboard.Errorf(outboard.Invalid, "open bucket",
				"%q: a name has letters, digits, \"-\" and \"_\", with no \"-\" at its ends", word)
		}
	}
	return nil
}

func isWord(word string) bool {
	return word != "" && word[0] != '-' && word[len(word)-1] != '-' &&
		!slices.ContainsFunc([]byte(word), func(c byte) bool { return !letter(c) && c != '-' && c != '_' })
}

// kvName returns the name of the bucket in NATS. The words' own dashes are doubled, so that no two
// buckets have one name.
func (o *Options) kvName() string {
	words := []string{"outboard"}
	for _, word := range []string{o.Tenant, o.App, o.Name} {
		words = append(words, strings.ReplaceAll(word, "-", "--"))
	}
	return strings.Join(words, "-")
}

// store is the part of state.KV that an owner uses.
type store interface {
	Commit(ctx context.Context, c state.Commit) error
	Spread(ctx context.Context, c state.Commit) error
	Since(ctx context.Context, revision uint64, f func(state.Entry)) (uint64, error)
	Current(ctx context.Context, revision uint64) (bool, error)
	Watch(ctx context.Context, revision uint64, f func(state.Entry)) error
	Tidy(ctx context.Context, before time.Time) error
}

// Bucket is an open bucket. All methods may be called by several goroutines.
type Bucket struct {
	opts   Options
	store  store
	writer string
	number uint64
	turns  fairBackoff
	queue  chan *job
	// unspread is the last commit, while its keys may have no messages of their own.
	unspread *state.Commit

	mu   sync.RWMutex // protects view, which only the owner's goroutine changes
	view view
	// accounted are the bytes that the tenant's budget holds for the bucket.
	accounted int64
	// lastCurrent is the last time at which the view was known to be current.
	lastCurrent time.Time

	done      chan struct{}
	closeOnce sync.Once
	running   sync.WaitGroup
}

// Entry is a key's value with its revision, which is 0 if the key has no value.
type Entry struct {
	// Value must not be changed.
	Value    []byte
	Revision uint64
	// ExpiresMilli is the time at which the key expires, in milliseconds since 1970, or 0.
	ExpiresMilli int64
}

// expired reports whether the key's time-to-live has passed.
func (e Entry) expired(now time.Time) bool {
	return e.ExpiresMilli != 0 && e.ExpiresMilli <= now.UnixMilli()
}

// ErrClosed says that the bucket was closed: transactions in progress may have committed.
var ErrClosed = errors.New("the bucket is closed")

// tidyAfter is how long the record of a writer that is gone is retained.
const tidyAfter = 24 * time.Hour

// Open opens a bucket, which it creates if it does not exist, and reads all its keys.
func Open(ctx context.Context, opts Options) (*Bucket, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	kv, err := opts.State.OpenKV(ctx, opts.kvName())
	if err != nil {
		return nil, err
	}
	return open(ctx, kv, opts)
}

func open(ctx context.Context, s store, opts Options) (*Bucket, error) {
	b := &Bucket{
		opts: opts, store: s, writer: nuid.Next(),
		queue: make(chan *job, queueLength), done: make(chan struct{}),
	}
	if err := b.sync(ctx); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", opts.Name, err)
	}
	if err := s.Tidy(ctx, time.Now().Add(-tidyAfter)); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", opts.Name, err)
	}
	life, cancel := context.WithCancel(context.Background())
	b.running.Go(func() {
		<-b.done
		cancel()
	})
	b.running.Go(func() { b.run(life) })
	return b, nil
}

// Get reads a key. The entry's revision is 0 if the key has no value.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	if err := checkKey(key); err != nil {
		return Entry{}, outboard.Errorf(outboard.Invalid, "get", "%w", err)
	}
	if _, err := b.submit(ctx, nil); err != nil {
		return Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.view.entry(key, wallClock()), nil
}

// Keys returns the keys that begin with prefix, sorted.
func (b *Bucket) Keys(ctx context.Context, prefix string) ([]string, error) {
	if _, err := b.submit(ctx, nil); err != nil {
		return nil, fmt.Errorf("keys of bucket %s: %w", b.opts.Name, err)
	}
	b.mu.RLock()
	var keys []string
	now := wallClock()
	for key, e := range b.view.keys {
		if strings.HasPrefix(key, prefix) && !e.expired(now) {
			keys = append(keys, key)
		}
	}
	b.mu.RUnlock()
	slices.Sort(keys)
	return keys, nil
}

// Txn executes all operations in order, or none. failed is the index of the first
// condition that did not hold, or -1 if the transaction was committed. After an error the
// transaction may or may not have been committed.
func (b *Bucket) Txn(ctx context.Context, ops []Op) (failed int, err error) {
	if err := checkTxn(ops); err != nil {
		return 0, outboard.Errorf(outboard.Invalid, "transaction", "%w", err)
	}
	failed, err = b.submit(ctx, cloneOps(ops))
	if err != nil {
		return 0, fmt.Errorf("transaction on bucket %s: %w", b.opts.Name, err)
	}
	return failed, nil
}

// Close closes the bucket after the transactions in progress.
func (b *Bucket) Close() error {
	b.closeOnce.Do(func() { close(b.done) })
	b.running.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.account(0)
	return nil
}

// account sets the number of bytes that the tenant's budget holds for the bucket.
func (b *Bucket) account(bytes int64) {
	b.opts.Budget.Adjust(bytes - b.accounted)
	b.accounted = bytes
}
