package function

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// bag is Resources that are there by name. It counts what was not released.
type bag struct {
	things map[string]Resource

	mu   sync.Mutex
	held int
}

func (b *bag) Import(_ context.Context, name string) (Resource, error) {
	r, ok := b.things[name]
	if !ok {
		return nil, fmt.Errorf("add %q under imports in app.yaml", name)
	}
	if a, ok := r.(*SharedArena); ok {
		return a, a.Arena.Retain()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held++
	return r.(interface{ of(b *bag) Resource }).of(b), nil
}

// left is how many imports were not released.
func (b *bag) left() int {
	n := b.held
	for _, r := range b.things {
		if a, ok := r.(*SharedArena); ok && a.Arena != nil {
			n += a.Arena.holders - 1
		}
	}
	return n
}

// held counts one hold of a bag.
type held struct{ b *bag }

func (h held) Release() {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.b.held--
}

// callee calls a function with the resources of the bag.
type callee struct {
	held
	f    *Function
	want Resources
}

func (c callee) of(b *bag) Resource { return callee{held{b}, c.f, b} }

func (c callee) Call(ctx context.Context, q Request) (Response, error) {
	q.Resources = c.want
	return c.f.Call(ctx, q)
}

// waiter is a function that never answers.
type waiter struct{ held }

func (w waiter) of(b *bag) Resource { return waiter{held{b}} }

func (w waiter) Call(ctx context.Context, _ Request) (Response, error) {
	<-ctx.Done()
	return Response{}, context.Cause(ctx)
}

type secret struct {
	held
	text string
}

func (s secret) of(b *bag) Resource { return secret{held{b}, s.text} }

func (s secret) Bytes() []byte { return []byte(s.text) }

// bucket is one key, and a transaction is text: "ok", "unmet N", or an error.
type bucket struct{ held }

func (k bucket) of(b *bag) Resource { return bucket{held{b}} }

func (k bucket) Get(_ context.Context, key string) ([]byte, uint64, error) {
	switch key {
	case "seat":
		return []byte("taken"), 7, nil
	case "":
		return nil, 0, errors.New("an empty key")
	}
	return nil, 0, nil
}

func (k bucket) Txn(_ context.Context, encoded []byte) (int, error) {
	number := 0
	switch text := string(encoded); {
	case text == "ok":
		return -1, nil
	case strings.HasPrefix(text, "unmet "):
		_, err := fmt.Sscanf(text, "unmet %d", &number)
		return number, err
	}
	return 0, errors.New("not a transaction")
}

// device reads and writes what a list says: "up TEXT" gives the text in capitals, "turn"
// and a place turns the bytes there around, "wait" takes for ever.
type device struct{ held }

func (d device) of(b *bag) Resource { return device{held{b}} }

func (d device) Info() []byte { return []byte(`{"name": "toy"}`) }

func (d device) Do(ctx context.Context, list []byte, memory func(at, size uint32) ([]byte, bool)) (DeviceResult, error) {
	switch {
	case bytes.HasPrefix(list, []byte("up ")):
		return DeviceResult{Read: bytes.ToUpper(list[3:]), Moved: int64(2 * len(list[3:]))}, nil
	case bytes.HasPrefix(list, []byte("print ")):
		return DeviceResult{Printed: bytes.Clone(list[6:])}, errors.New("it has only printed")
	case bytes.HasPrefix(list, []byte("turn")) && len(list) == 12:
		b, ok := memory(binary.LittleEndian.Uint32(list[4:]), binary.LittleEndian.Uint32(list[8:]))
		if !ok {
			return DeviceResult{}, errors.New("no such memory")
		}
		slices.Reverse(b)
		return DeviceResult{Moved: int64(2 * len(b))}, nil
	case string(list) == "wait":
		<-ctx.Done()
		return DeviceResult{}, context.Cause(ctx)
	}
	return DeviceResult{}, errors.New("not a list of commands")
}
