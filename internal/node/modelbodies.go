package node

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
	"github.com/outboard-run/outboard/internal/model/bounded"
)

// Bounds of the bodies of requests for models that are being read or processed, in bytes: of all
// clients of a node, and of one. freeBody is the size up to which a body is not counted, since most
// bodies are smaller.
const (
	maxModelBodies  = 2 << 30
	maxClientBodies = maxModelBodies / 2
	freeBody        = grpcconn.FreeBytes
)

// valueSize is about what a value of a JSON request for text takes when it is decoded, in bytes: a
// message of a conversation, or an entry of a map.
const valueSize = 256

// modelBodies counts the bodies of requests for models, which the interfaces hold in memory.
// Otherwise one client could exhaust the node's memory with many requests, none of which is too
// large.
type modelBodies struct{ *grpcconn.Budget }

func newModelBodies() *modelBodies {
	return &modelBodies{grpcconn.NewBudget(maxModelBodies, maxClientBodies, func(held, all, each int64) error {
		return outboard.Errorf(outboard.Busy, "", "requests for models hold %v on this node, of %v at most and %v of one client: send it again later",
			outboard.Bytes(held), outboard.Bytes(all), outboard.Bytes(each))
	})}
}

// countBody has the body of a request counted for a client as it is read, until the returned function
// is called. perValue is added for each value of the body, which is JSON; it is 0 for a body that the
// interface itself checks.
func (b *modelBodies) countBody(r *http.Request, client string, perValue int64) (release func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	body := &countedBody{ReadCloser: r.Body, all: b, client: client, perValue: perValue}
	r.Body = body
	return body.release
}

// hold reserves memory for the client of a request, in bytes, until release is called.
func (b *modelBodies) hold(ctx context.Context, n int64) (release func(), err error) {
	client := ownerOf(ctx)
	if err := b.Reserve(client, n); err != nil {
		return nil, err
	}
	return func() { b.Release(client, n) }, nil
}

// A countedBody is a body whose bytes are counted.
type countedBody struct {
	io.ReadCloser
	all      *modelBodies
	client   string
	perValue int64
	values   bounded.Scanner

	mu       sync.Mutex // a handler may read in a separate goroutine
	read     int64
	reserved int64
	released bool
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	size := int64(n)
	if b.perValue > 0 {
		size += b.perValue * b.values.Values(p[:n])
	}
	if full := b.count(size); full != nil {
		return 0, full
	}
	return n, err
}

func (b *countedBody) count(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read += n
	more := b.read - freeBody - b.reserved
	if more <= 0 || b.released {
		return nil
	}
	if err := b.all.Reserve(b.client, more); err != nil {
		return err
	}
	b.reserved += more
	return nil
}

// release ends the count: the body is no longer in memory.
func (b *countedBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = true
	if b.reserved > 0 {
		b.all.Release(b.client, b.reserved)
	}
	b.reserved = 0
}
