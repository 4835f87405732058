package tenant

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/tenant/blob"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// values holds the arenas through which steps pass their results: it implements engine.Values.
type values struct {
	files *blob.Store
	// arenaSize is the size of the arenas of an app's executions.
	arenaSize func(app string) outboard.Bytes
	// released is called when an execution no longer runs here.
	released func(engine.ID)

	mu     sync.Mutex
	arenas map[engine.ID]*function.Arena
}

func newValues(f *blob.Store, arenaSize func(string) outboard.Bytes, released func(engine.ID)) *values {
	return &values{files: f, arenaSize: arenaSize, released: released, arenas: map[engine.ID]*function.Arena{}}
}

// arena returns an execution's arena on this node, with a reference that the caller closes.
func (v *values) arena(id engine.ID) (*function.Arena, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := v.arenas[id]
	if a == nil {
		var err error
		if a, err = function.NewArena(v.arenaSize(id.App())); err != nil {
			return nil, fmt.Errorf("arena of %s: %w", id, err)
		}
		v.arenas[id] = a
	}
	if err := a.Retain(); err != nil {
		return nil, err
	}
	return a, nil
}

// Put implements engine.Values.
func (v *values) Put(_ context.Context, id engine.ID, data []byte) (engine.Extent, error) {
	a, err := v.arena(id)
	if err != nil {
		return engine.Extent{}, err
	}
	defer a.Close()
	p, err := a.Put(data)
	return engine.Extent{Offset: int64(p.Offset), Size: int64(p.Size)}, err
}

// slice returns a copy of an extent of an execution's arena.
func (v *values) slice(id engine.ID, p engine.Extent) ([]byte, error) {
	a, err := v.arena(id)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := a.Slice(function.Extent{Offset: int(p.Offset), Size: int(p.Size)})
	return bytes.Clone(b), err
}

// Save implements engine.Values.
func (v *values) Save(ctx context.Context, id engine.ID, at engine.Extent) (string, error) {
	a, err := v.arena(id)
	if err != nil {
		return "", err
	}
	defer a.Close()
	b, err := a.Slice(function.Extent{Offset: int(at.Offset), Size: int(at.Size)})
	if err != nil {
		return "", err
	}
	return v.files.Save(ctx, string(id), b)
}

// Load implements engine.Values.
func (v *values) Load(ctx context.Context, id engine.ID, value core.Value) (engine.Extent, error) {
	b, err := v.files.Read(ctx, value.Digest)
	if err != nil {
		return engine.Extent{}, err
	}
	return v.Put(ctx, id, b)
}

// Bytes implements engine.Values.
func (v *values) Bytes(_ context.Context, id engine.ID, at engine.Extent) ([]byte, error) {
	return v.slice(id, at)
}

// Fetch implements engine.Values.
func (v *values) Fetch(ctx context.Context, _ engine.ID, value core.Value) ([]byte, error) {
	return v.files.Read(ctx, value.Digest)
}

// Release implements engine.Values.
func (v *values) Release(id engine.ID) {
	v.mu.Lock()
	a := v.arenas[id]
	delete(v.arenas, id)
	v.mu.Unlock()
	v.released(id)
	if a != nil {
		_ = a.Close() // our reference; steps in progress have their own
	}
}

// Forget implements engine.Values.
func (v *values) Forget(ctx context.Context, id engine.ID) error {
	v.Release(id)
	return v.files.Forget(ctx, string(id))
}

// Saved implements engine.Values.
func (v *values) Saved(_ context.Context, before time.Time) ([]engine.ID, error) {
	owners, err := v.files.Owners(before)
	ids := make([]engine.ID, len(owners))
	for i, owner := range owners {
		ids[i] = engine.ID(owner)
	}
	return ids, err
}

// close drops all arenas.
func (v *values) close() {
	v.mu.Lock()
	all := v.arenas
	v.arenas = map[engine.ID]*function.Arena{}
	v.mu.Unlock()
	for _, a := range all {
		_ = a.Close() // our reference
	}
}
