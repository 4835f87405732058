package data

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/outboard-run/outboard"
)

// maxHeld bounds the chunks that a Reader holds: 128 MiB at most.
const maxHeld = 2 * aheadCount

// A Reader reads the files of a manifest into memory of its callers. It fetches chunks before they
// are read, and holds the chunks that were read last, so that several ranks that read the same
// files cause one fetch of each. Any number of goroutines may use it.
type Reader struct {
	chunks   Chunks
	files    map[string]*File
	life     context.Context //nolint:containedctx // of the fetches
	cancel   context.CancelFunc
	fetching sync.WaitGroup

	mu     sync.Mutex
	closed bool
	held   map[Chunk]*list.Element // elements of order
	order  *list.List              // of *heldChunk, the most recently used in front
}

// A heldChunk is a chunk that has arrived or is being fetched. Its content has the size of chunk: a
// manifest may name one digest with several sizes.
type heldChunk struct {
	chunk Chunk
	used  bool // by a read: a chunk that was only fetched ahead is not
	ready chan struct{}
	fetched
}

// NewReader returns a Reader of the files of a manifest.
func NewReader(m *Manifest, chunks Chunks) *Reader {
	r := &Reader{chunks: chunks, files: make(map[string]*File, len(m.Files)), held: make(map[Chunk]*list.Element), order: list.New()}
	r.life, r.cancel = context.WithCancel(context.Background())
	for i := range m.Files {
		r.files[m.Files[i].Name] = &m.Files[i]
	}
	return r
}

// Close ends all fetches and waits for them.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.fetching.Wait()
	return nil
}

// Read fills buf with bytes of a file, from the offset at on. next are the files that the caller
// reads after this one; the rest of this file and the beginnings of the next ones are fetched
// ahead.
func (r *Reader) Read(ctx context.Context, name string, at int64, buf []byte, next []string) error {
	f := r.files[name]
	if f == nil {
		return outboard.Errorf(outboard.NotFound, "", "the dataset has no file %.200q", name)
	}
	size := f.size()
	if at < 0 || at > size || int64(len(buf)) > size-at {
		return outboard.Errorf(outboard.Invalid, "", "bytes %d to %d of %.200q, which has %d", at, at+int64(len(buf)), name, size)
	}
	first, end, skip := f.covering(at, int64(len(buf)))
	r.fetchNext(f.Chunks[first:], next)
	for _, c := range f.Chunks[first:end] {
		content, err := r.chunk(ctx, c)
		if err != nil {
			return fmt.Errorf("read %.200q of the dataset: %w", name, err)
		}
		buf = buf[copy(buf, content[skip:]):]
		skip = 0
	}
	return nil
}

func (f *File) size() (n int64) {
	for _, c := range f.Chunks {
		n += c.Size
	}
	return n
}

// covering returns the chunks, first to end-1, that have n bytes from at on, and the offset of at
// in the first one.
func (f *File) covering(at, n int64) (first, end int, skip int64) {
	for first < len(f.Chunks) && at >= f.Chunks[first].Size {
		at -= f.Chunks[first].Size
		first++
	}
	end = first
	for left := at + n; left > 0 && n > 0 && end < len(f.Chunks); end++ {
		left -= f.Chunks[end].Size
	}
	return first, end, at
}

// chunk waits for a chunk and returns it.
func (r *Reader) chunk(ctx context.Context, c Chunk) ([]byte, error) {
	h := r.hold(c, true)
	if h == nil {
		return nil, outboard.Errorf(outboard.Unreachable, "", "the job has ended")
	}
	select {
	case <-h.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return h.content, h.err
}

// fetchNext begins to fetch the chunks that are read next.
func (r *Reader) fetchNext(chunks []Chunk, next []string) {
	left := aheadCount
	fetchSome := func(chunks []Chunk) {
		for _, c := range chunks[:min(left, len(chunks))] {
			r.hold(c, false)
			left--
		}
	}
	fetchSome(chunks)
	for _, name := range next {
		if f := r.files[name]; f != nil {
			fetchSome(f.Chunks)
		}
	}
}

// hold returns a chunk that is held, or begins to fetch it. It returns nil if the reader is closed,
// or if the chunk is not needed yet and too many are held that have not been used.
func (r *Reader) hold(c Chunk, needed bool) *heldChunk {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.held[c]; e != nil {
		h := elementChunk(e)
		if needed {
			h.used = true
			r.order.MoveToFront(e)
		}
		return h
	}
	if r.closed || !r.makeRoom(needed) {
		return nil
	}
	h := &heldChunk{chunk: c, used: needed, ready: make(chan struct{})}
	r.held[c] = r.order.PushFront(h)
	r.fetching.Go(func() {
		defer close(h.ready)
		if h.fetched = fetch(r.life, r.chunks, c); h.err != nil {
			r.drop(h)
		}
	})
	return h
}

// makeRoom reports whether another chunk may be held. If maxHeld chunks are held it drops the least
// recently used one, or, for a needed chunk, any that has arrived. r.mu is held.
func (r *Reader) makeRoom(needed bool) bool {
	if r.order.Len() < maxHeld {
		return true
	}
	for _, unused := range []bool{false, true} {
		for e := r.order.Back(); e != nil && (needed || !unused); e = e.Prev() {
			h := elementChunk(e)
			if (h.used || unused) && h.isThere() {
				r.remove(e)
				return true
			}
		}
	}
	return needed // All are being fetched, each for a reader or ahead of one.
}

func (h *heldChunk) isThere() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

// drop forgets a chunk that could not be fetched: the next read tries again.
func (r *Reader) drop(h *heldChunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.held[h.chunk]; e != nil && elementChunk(e) == h {
		r.remove(e)
	}
}

func (r *Reader) remove(e *list.Element) {
	r.order.Remove(e)
	delete(r.held, elementChunk(e).chunk)
}

func elementChunk(e *list.Element) *heldChunk {
	return e.Value.(*heldChunk) //nolint:errcheck,forcetypeassert // the list has nothing else
}
