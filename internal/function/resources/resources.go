// Package resources has the resources that an app's functions share on a node: buckets,
// named arenas and secrets.
package resources

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/pool/bucket"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/quota"
)

// Options of an App.
type Options struct {
	State       *state.State
	Tenant, App string
	// Arenas and Buckets are the tenant's budgets for both; nil means no limit. Life bounds the
	// opening of buckets, and Go runs a function for which the process waits before it ends.
	Arenas, Buckets *quota.Budget
	Life            context.Context //nolint:containedctx // buckets outlive the calls that open them
	Go              func(func())
	Logger          *slog.Logger
}

// App has the resources of one app, which are the same for all of its versions. All methods
// may be called by several goroutines.
type App struct {
	opts Options

	mu      sync.Mutex
	closed  bool
	buckets map[string]*opening
	arenas  map[string]*function.Arena
	secrets map[string][]byte
}

// opening is a bucket that is open or being opened.
type opening struct {
	done   chan struct{}
	bucket *bucket.Bucket
	err    error
}

// New returns an App with no resource opened.
func New(o Options) *App {
	return &App{opts: o, buckets: map[string]*opening{}, arenas: map[string]*function.Arena{}}
}

// Bucket imports a bucket. ttl is the time to live of values that are put without one, 0 for
// ever. The first import opens the bucket.
func (a *App) Bucket(ctx context.Context, name string, ttl time.Duration) (function.Resource, error) {
	a.mu.Lock()
	o, ok := a.buckets[name]
	if !ok && !a.closed {
		o = &opening{done: make(chan struct{})}
		a.buckets[name] = o
		a.opts.Go(func() { a.open(name, o) })
	}
	a.mu.Unlock()
	if o == nil {
		return nil, fmt.Errorf("bucket %s: the app was removed", name)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-o.done:
	}
	if o.err != nil {
		return nil, o.err
	}
	return bucketResource{o.bucket, ttl}, nil
}

// open opens a bucket for all callers that wait. After an error the next import tries again.
func (a *App) open(name string, o *opening) {
	defer close(o.done)
	o.bucket, o.err = bucket.Open(a.opts.Life, bucket.Options{
		State: a.opts.State, Tenant: a.opts.Tenant, App: a.opts.App, Name: name, Budget: a.opts.Buckets, Logger: a.opts.Logger,
	})
	if o.err == nil {
		return
	}
	o.err = fmt.Errorf("bucket %s: %w", name, o.err)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.buckets, name)
}

// Arena imports a named arena.
func (a *App) Arena(name string, size outboard.Bytes, readOnly bool) (function.Resource, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fmt.Errorf("arena %s: the app was removed", name)
	}
	arena := a.arenas[name]
	if arena == nil {
		var err error
		if arena, err = function.NewArena(size); err != nil {
			return nil, fmt.Errorf("arena %s: %w", name, err)
		}
		a.arenas[name] = arena
	}
	if a.opts.Arenas != nil {
		if err := arena.Charge(a.opts.Arenas); err != nil {
			return nil, fmt.Errorf("arena %s: %w", name, err)
		}
	}
	if err := arena.Retain(); err != nil {
		return nil, err
	}
	return &function.SharedArena{Arena: arena, ReadOnly: readOnly}, nil
}

// SetSecrets replaces the app's secrets.
func (a *App) SetSecrets(secrets map[string][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secrets = secrets
}

// Secret imports a secret.
func (a *App) Secret(name string) (function.Resource, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, ok := a.secrets[name]
	if !ok {
		return nil, outboard.Errorf(outboard.NotFound, "", "secret %s has no value: deploy the app again where it has one", name)
	}
	return secretResource{text}, nil
}

// Close frees the resources when no function of the app runs any more.
func (a *App) Close() {
	a.mu.Lock()
	a.closed = true
	buckets, arenas := a.buckets, a.arenas
	a.buckets, a.arenas = nil, nil
	a.mu.Unlock()
	for _, o := range buckets {
		if <-o.done; o.bucket != nil {
			_ = o.bucket.Close() // everything that it acknowledged is stored
		}
	}
	for _, arena := range arenas {
		_ = arena.Close() // the app's own reference
	}
}

// bucketResource is a bucket as a function imports it.
type bucketResource struct {
	*bucket.Bucket
	ttl time.Duration // of values that are put without one, 0 for ever
}

// Release implements function.Resource. The bucket stays open.
func (bucketResource) Release() {}

// Get implements function.Bucket.
func (b bucketResource) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	e, err := b.Bucket.Get(ctx, key)
	return e.Value, e.Revision, err
}

// Txn implements function.Bucket.
func (b bucketResource) Txn(ctx context.Context, encoded []byte) (int, error) {
	ops, err := bucket.DecodeTxn(encoded)
	if err != nil {
		return 0, err // it says that the transaction is wrong
	}
	for i := range ops {
		switch ops[i].Kind {
		case bucket.Put, bucket.PutIfMissing, bucket.Add:
			ops[i].TTL = b.ttl
		case bucket.Delete, bucket.Missing, bucket.Revision, bucket.PutFor:
		}
	}
	return b.Bucket.Txn(ctx, ops)
}

// secretResource is a secret as a function imports it.
type secretResource struct{ text []byte }

// Release implements function.Resource.
func (secretResource) Release() {}

// Bytes implements function.Secret.
func (s secretResource) Bytes() []byte { return s.text }
