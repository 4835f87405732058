package function

import (
	"context"
	"errors"
	"fmt"
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
		return a, a.Arena.Hold()
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
