package collective

import (
	"cmp"
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

// storePieces and storePiece say in which pieces a part is uploaded: of at most storePiece bytes, or
// as many as storePieces. The transfer of a piece has to take long beside its request.
const (
	storePieces = 8
	storePiece  = 256 << 10
)

// storeAllReduce sums over all ranks through the store: a scatter-reduce and an all-gather, in
// which a message without elements tells a rank that an object is there, so that no rank polls.
//
// The pipelined form follows FuncPipe (Liu and others, POMACS 2022, section 3.3): a rank uploads
// the part of the next rank while it downloads the part that the previous rank has uploaded for it.
// There it takes 2s/w, with s bytes and a bandwidth of w each way, since in both phases the first
// download waits for a whole part. Here each of the n ranks uploads a part in c pieces, so it takes
// 2s/w (1 - 1/n + 1/(nc)). The plain form, of LambdaML, takes 3s/w - 2s/(nw).
func (x *execution) storeAllReduce() error {
	ctx, cancel := context.WithCancel(x.g.ended)
	defer cancel()
	t := &storeTransfer{execution: x, ctx: ctx, store: x.g.store, pieces: 1}
	steps := []func() error{t.uploadParts, t.reducePart, t.uploadSum, t.gatherParts, t.deleteLast}
	if !t.store.Plain {
		t.pieces = min(max((len(t.buf)/t.g.n+storePiece-1)/storePiece, 1), storePieces)
		steps = []func() error{t.together(t.uploadParts, t.reducePart), t.together(t.uploadSum, t.gatherParts), t.deleteLast}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// A storeTransfer is a call through the store.
type storeTransfer struct {
	*execution
	ctx    context.Context //nolint:containedctx // of the call
	store  Store
	pieces int // of each part
}

// together returns a step that uploads and downloads at the same time. An error of one ends the
// group, and so the other, which may wait for ranks that wait for this one.
func (t *storeTransfer) together(upload, download func() error) func() error {
	return func() error {
		uploaded := make(chan error, 1)
		go func() { uploaded <- t.failing(upload()) }()
		return cmp.Or(t.failing(download()), <-uploaded)
	}
}

// failing ends the group if there is an error.
func (t *storeTransfer) failing(err error) error {
	if err != nil {
		t.g.fail(err)
	}
	return err
}

// name returns the name of a piece of the part of rank to, as rank from has it.
func (t *storeTransfer) name(number uint64, from, to, piece int) string {
	return fmt.Sprintf("%s%d/%d-%d-%d", t.store.Prefix, number, from, to, piece)
}

// merged is the receiver in the name of a part that has been reduced.
const merged = -1

// piece returns a piece of a rank's part.
func (t *storeTransfer) piece(rank, piece int) []byte {
	whole := part(rank, t.g.n, t.call.Count)
	p := part(piece, t.pieces, whole.Len())
	return t.bytes(Span{whole.From + p.From, whole.From + p.To})
}

// A transfer is the upload or the download of a piece, to or from a rank.
type transfer struct{ rank, piece int }

// transfers returns the transfers of the pieces of all other ranks, first the first piece of each,
// beginning with the rank at a distance of step.
func (t *storeTransfer) transfers(step int) (all []transfer) {
	n := t.g.n
	for piece := range t.pieces {
		for k := 1; k < n; k++ {
			all = append(all, transfer{(t.g.rank + n + k*step) % n, piece})
		}
	}
	return all
}

// uploadParts uploads the part of each other rank, and notifies that rank.
func (t *storeTransfer) uploadParts() error {
	for _, x := range t.transfers(1) {
		if err := t.put(t.name(t.number, t.g.rank, x.rank, x.piece), x); err != nil {
			return err
		}
		if err := t.notify(x.rank); err != nil {
			return err
		}
	}
	return nil
}

// uploadSum uploads the part of this rank, and notifies all others.
func (t *storeTransfer) uploadSum() error {
	for piece := range t.pieces {
		if err := t.put(t.name(t.number, t.g.rank, merged, piece), transfer{t.g.rank, piece}); err != nil {
			return err
		}
		for k := 1; k < t.g.n; k++ {
			if err := t.notify((t.g.rank + k) % t.g.n); err != nil {
				return err
			}
		}
	}
	return nil
}

// put uploads a piece as an object.
func (t *storeTransfer) put(name string, x transfer) error {
	return t.store.Objects.Put(t.ctx, name, t.piece(x.rank, x.piece))
}

// notify tells a rank that its next object is there.
func (t *storeTransfer) notify(rank int) error {
	return t.g.peers[rank].send(t.number, t.announced, nil)
}

// reducePart downloads the parts that the others have uploaded for this rank, and adds them to its
// own.
func (t *storeTransfer) reducePart() error {
	all := t.transfers(-1)
	read, deleted := make(chan string, len(all)), make(chan error, 1)
	go func() { deleted <- t.delete(read) }()
	err := t.reduce(all, read)
	close(read)
	return cmp.Or(err, <-deleted)
}

// reduce downloads objects, adds them to this rank's part, and passes on their names.
func (t *storeTransfer) reduce(all []transfer, read chan<- string) error {
	for _, x := range all {
		name, to := t.name(t.number, x.rank, t.g.rank, x.piece), t.piece(t.g.rank, x.piece)
		got, err := t.download(x.rank, name, len(to))
		if err != nil {
			return err
		}
		combine(to, got, t.call.Element, t.call.Reduction)
		read <- name
	}
	return nil
}

// delete removes objects while others are downloaded.
func (t *storeTransfer) delete(names <-chan string) (err error) {
	for name := range names {
		if err == nil {
			err = t.store.Objects.Delete(t.ctx, name)
		}
	}
	return err
}

// gatherParts downloads the parts of the others.
func (t *storeTransfer) gatherParts() error {
	for _, x := range t.transfers(-1) {
		to := t.piece(x.rank, x.piece)
		got, err := t.download(x.rank, t.name(t.number, x.rank, merged, x.piece), len(to))
		if err != nil {
			return err
		}
		copy(to, got)
	}
	return nil
}

// deleteLast removes the objects of this rank that remain of the previous call: the others have
// read them, since they have announced their parts of this one.
func (t *storeTransfer) deleteLast() error {
	last := t.g.stored
	t.g.stored = stored{t.number, t.pieces}
	for piece := range last.pieces {
		if err := t.store.Objects.Delete(t.ctx, t.name(last.number, t.g.rank, merged, piece)); err != nil {
			return err
		}
	}
	return nil
}

// stored is a call through the store whose sums are still there, in a number of pieces.
type stored struct {
	number uint64
	pieces int
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
