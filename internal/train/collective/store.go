package collective

import (
	"context"
	"fmt"
	"unsafe"
)

// Objects is an object store that all ranks reach. Any number of goroutines may use it.
type Objects interface {
	Put(ctx context.Context, name string, content []byte) error
	// Get returns an object of at most limit bytes.
	Get(ctx context.Context, name string, limit int64) ([]byte, error)
	// Delete removes an object.
	Delete(ctx context.Context, name string) error
}

// A Store lets groups sum through an object store: see [Call.Store].
type Store struct {
	Objects Objects
	// Prefix begins the names of the group's objects; no other group has it.
	Prefix string
	// Plain uploads all parts before the first download, for comparison.
	Plain bool
}

// storeAllReduce sums over all ranks through the store: a scatter-reduce and an all-gather, in
// which a message without elements tells a rank that an object is there, so that no rank polls.
//
// The pipelined form is that of FuncPipe (Liu and others, POMACS 2022, section 3.3): a rank uploads
// the part of the next rank while it downloads the part that the previous rank has uploaded for it.
// With s bytes, a bandwidth of w each way and n ranks it takes 2s/w; the plain form, of LambdaML,
// takes 3s/w - 2s/(nw).
func (x *execution) storeAllReduce() error {
	ctx, cancel := context.WithCancel(x.g.ended)
	defer cancel()
	t := &storeTransfer{execution: x, ctx: ctx, store: x.g.store}
	uploaded := make(chan error, 1)
	go func() { uploaded <- t.uploadParts() }()
	if t.store.Plain {
		err := <-uploaded
		if uploaded <- err; err != nil {
			return err
		}
	}
	if err := t.reducePart(); err != nil {
		cancel()
		return x.abandon(err, uploaded)
	}
	if err := <-uploaded; err != nil {
		return err
	}
	return t.gatherParts()
}

// A storeTransfer is a call through the store.
type storeTransfer struct {
	*execution
	ctx   context.Context //nolint:containedctx // of the call
	store Store
}

func (t *storeTransfer) name(number uint64, from, to int) string {
	return fmt.Sprintf("%s%d/%d-%d", t.store.Prefix, number, from, to)
}

// merged is the receiver in the name of a part that has been reduced.
const merged = -1

// uploadParts uploads the part of each other rank, and notifies that rank.
func (t *storeTransfer) uploadParts() error {
	n, rank := t.g.n, t.g.rank
	for k := 1; k < n; k++ {
		to := (rank + k) % n
		if err := t.store.Objects.Put(t.ctx, t.name(t.number, rank, to), t.bytes(part(to, n, t.call.Count))); err != nil {
			return err
		}
		if err := t.g.peers[to].send(t.number, t.announced, nil); err != nil {
			return err
		}
	}
	return nil
}

// reducePart downloads the parts that the others have uploaded for this rank, and adds them to its
// own.
func (t *storeTransfer) reducePart() error {
	n, rank := t.g.n, t.g.rank
	own := t.bytes(part(rank, n, t.call.Count))
	for k := 1; k < n; k++ {
		from := (rank + n - k) % n
		name := t.name(t.number, from, rank)
		got, err := t.download(from, name, len(own))
		if err != nil {
			return err
		}
		combine(own, got, t.call.Element, t.call.Reduction)
		if err := t.store.Objects.Delete(t.ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// download waits until an object's rank has said that it is there, and returns the object.
func (t *storeTransfer) download(from int, name string, size int) ([]byte, error) {
	nothing := func(int, int) []byte { return nil }
	if err := t.g.peers[from].receive(t.number, 0, nothing, func(int, []byte) {}); err != nil {
		return nil, err
	}
	got, err := t.store.Objects.Get(t.ctx, name, int64(size))
	if err != nil {
		return nil, err
	}
	if len(got) != size {
		return nil, fmt.Errorf("object %s has %d bytes where %d are due", name, len(got), size)
	}
	if !aligned(got, t.call.Element) {
		words := make([]uint64, (size+7)/8)
		copyOf := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
		copy(copyOf, got)
		got = copyOf
	}
	return got, nil
}

// gatherParts uploads the part of this rank and downloads those of the others. When the others have
// announced their parts of this call, they have read those of the previous call, whose object this
// rank deletes.
func (t *storeTransfer) gatherParts() error {
	n, rank := t.g.n, t.g.rank
	if err := t.store.Objects.Put(t.ctx, t.name(t.number, rank, merged), t.bytes(part(rank, n, t.call.Count))); err != nil {
		return err
	}
	for k := 1; k < n; k++ {
		if err := t.g.peers[(rank+k)%n].send(t.number, t.announced, nil); err != nil {
			return err
		}
	}
	for k := 1; k < n; k++ {
		from := (rank + n - k) % n
		to := t.bytes(part(from, n, t.call.Count))
		got, err := t.download(from, t.name(t.number, from, merged), len(to))
		if err != nil {
			return err
		}
		copy(to, got)
	}
	last := t.g.stored
	t.g.stored = t.number
	if last == 0 {
		return nil
	}
	return t.store.Objects.Delete(t.ctx, t.name(last, rank, merged))
}
