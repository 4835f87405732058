package guestsuite

import (
	"context"
	"strings"

	"github.com/outboard-run/outboard/guest/go/guesttest"
	"github.com/outboard-run/outboard/internal/function"
)

// resources implements a function's imports with a test's host.
type resources struct {
	*guesttest.Host
	arena *function.Arena
}

type resource struct {
	*guesttest.Host
	handle int32
}

func (r resources) Import(_ context.Context, name string) (function.Resource, error) {
	if name == "arena:photos" {
		return &function.SharedArena{Arena: r.arena}, r.arena.Retain()
	}
	handle, err := r.Host.Import(name)
	if err != nil {
		return nil, err
	}
	switch base := (resource{r.Host, handle}); {
	case strings.HasPrefix(name, "function:"):
		return callee{base}, nil
	case strings.HasPrefix(name, "bucket:"):
		return bucket{base}, nil
	case strings.HasPrefix(name, "device:"):
		return device{base}, nil
	default:
		return secret{base}, nil
	}
}

func (r resource) Release() { r.Drop(r.handle) }

type callee struct{ resource }

func (c callee) Call(_ context.Context, q function.Request) (function.Response, error) {
	b, err := c.Host.Call(c.handle, q.Body)
	return function.Response{Body: b}, err
}

type bucket struct{ resource }

func (b bucket) Get(_ context.Context, key string) ([]byte, uint64, error) {
	value, revision, err := b.Host.Get(b.handle, key)
	return value, uint64(revision), err
}

func (b bucket) Txn(_ context.Context, ops []byte) (int, error) { return b.Host.Txn(b.handle, ops) }

type secret struct{ resource }

func (s secret) Bytes() []byte {
	b, _ := s.Secret(s.handle)
	return b
}

type device struct{ resource }

func (d device) Info() []byte {
	b, _ := d.DeviceInfo(d.handle)
	return b
}

func (d device) Do(_ context.Context, list []byte, memory func(at, size uint32) ([]byte, bool)) (function.DeviceResult, error) {
	b, err := d.DeviceDo(d.handle, list, memory)
	return function.DeviceResult{Read: b, Moved: int64(len(list))}, err
}
