package tenant

import (
	"context"
	"fmt"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/pool/bucket"
)

// A home is what an app has whatever its version: buckets and arenas.
type home struct {
	tenant *Tenant
	app    string

	mu      sync.Mutex
	closed  bool
	buckets map[string]*opening
	arenas  map[string]*function.Arena
	secrets map[string][]byte
	devices devices
}

// An opening is a bucket that is open or about to be.
type opening struct {
	done   chan struct{}
	bucket *bucket.Bucket
	err    error
}

func newHome(t *Tenant, app string) *home {
	return &home{tenant: t, app: app, buckets: map[string]*opening{}, arenas: map[string]*function.Arena{}}
}

// bucket returns the app's bucket, which its first user opens.
func (h *home) bucket(ctx context.Context, name string) (*bucket.Bucket, error) {
	h.mu.Lock()
	o, ok := h.buckets[name]
	if !ok && !h.closed {
		o = &opening{done: make(chan struct{})}
		h.buckets[name] = o
		h.tenant.running.Go(func() { h.open(name, o) })
	}
	h.mu.Unlock()
	if o == nil {
		return nil, fmt.Errorf("bucket %s: the app was removed", name)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-o.done:
		return o.bucket, o.err
	}
}

// open opens a bucket for all who wait. One that can't be opened is tried again by the
// next user.
func (h *home) open(name string, o *opening) {
	defer close(o.done)
	o.bucket, o.err = bucket.Open(h.tenant.life, bucket.Options{
		State: h.tenant.state, Tenant: h.tenant.config.Tenant, App: h.app, Name: name, Logger: h.tenant.log,
	})
	if o.err == nil {
		return
	}
	o.err = fmt.Errorf("bucket %s: %w", name, o.err)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.buckets, name)
}

// arena returns the app's named arena on this node, held for the caller.
func (h *home) arena(name string, size outboard.Bytes) (*function.Arena, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("arena %s: the app was removed", name)
	}
	a := h.arenas[name]
	if a == nil {
		var err error
		if a, err = function.NewArena(size); err != nil {
			return nil, fmt.Errorf("arena %s: %w", name, err)
		}
		h.arenas[name] = a
	}
	if err := a.Hold(); err != nil {
		return nil, err
	}
	return a, nil
}

// keep replaces the app's secrets.
func (h *home) keep(secrets map[string][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.secrets = secrets
}

func (h *home) secret(name string) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text, ok := h.secrets[name]
	return text, ok
}

// close gives everything back, when no function of the app runs any more.
func (h *home) close() {
	h.mu.Lock()
	h.closed = true
	buckets, arenas := h.buckets, h.arenas
	h.buckets, h.arenas = nil, nil
	h.mu.Unlock()
	h.devices.drop()
	for _, o := range buckets {
		if <-o.done; o.bucket != nil {
			_ = o.bucket.Close() // what it promised is stored
		}
	}
	for _, a := range arenas {
		_ = a.Close() // ours
	}
}
