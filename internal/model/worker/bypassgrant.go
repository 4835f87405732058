package worker

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// A Bypass is the node's end of a connection through which a tenant's process calls a worker
// itself. Its gate is closed at first. It ends with the worker, or by Close. Any number of
// goroutines may use it.
type Bypass struct {
	worker *Worker
	id     uint64
	ring   *shm.Ring // mapped to close it
	files  []*os.File
	done   chan struct{}

	mu    sync.Mutex
	ended bool
	gate  gate
	words []byte       // the counters; nil once ended
	last  BypassCounts // the counts at the end
}

// OpenBypass makes the worker accept the calls of one other process, whose tensors have together up
// to size bytes, and cancel a call that takes longer than limit.
func (w *Worker) OpenBypass(ctx context.Context, size int, limit time.Duration) (*Bypass, error) {
	if w.tensors == nil || size < 0 || size > MaxBypass {
		return nil, outboard.Errorf(outboard.Invalid, "bypass", "the model takes no tensors of %v in one call", outboard.Bytes(size))
	}
	b := &Bypass{worker: w, id: w.bypasses.number(), done: make(chan struct{})}
	if err := b.create(size); err != nil {
		b.end()
		return nil, err
	}
	w.bypasses.add(b)
	ctx, cancel := context.WithTimeout(ctx, segmentLimit)
	defer cancel()
	m, err := w.conn.Call(ctx, typeBypass, bypassMessage{ID: b.id, Limit: limit}, b.files...)
	if err != nil {
		return nil, errors.Join(w.explain(err), b.Close(ctx, true))
	}
	m.Close()
	return b, nil
}

// create creates the memory.
func (b *Bypass) create(size int) (err error) {
	if b.ring, err = shm.Create(ringArea); err != nil {
		return err
	}
	b.files = append(b.files, b.ring.File())
	tensors, err := newSegment(0, bypassHeader+size+minSegment/2)
	if err != nil {
		return err
	}
	b.files = append(b.files, tensors.file)
	tensors.file = nil
	tensors.unmap() // the node reads none of it
	f, published, err := memfd.NewPublished("outboard-gate", wordsSize)
	if err != nil {
		return err
	}
	b.files, b.gate = append(b.files, f), published
	counts, err := newSegment(0, wordsSize)
	if err != nil {
		return err
	}
	b.files, b.words = append(b.files, counts.file), counts.mem
	return nil
}

// Files returns the files that the other process needs, in the order in which OpenBypassClient
// takes them. They are open until the bypass ends.
func (b *Bypass) Files() []*os.File { return b.files[:callerFiles] }

// Done returns a channel that is closed when the bypass has ended.
func (b *Bypass) Done() <-chan struct{} { return b.done }

// SetOpen opens or closes the gate. A call that the worker has begun to execute is not affected.
func (b *Bypass) SetOpen(open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.gate.set(open)
	}
}

// Counts returns the counts of the calls.
func (b *Bypass) Counts() BypassCounts {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return b.last
	}
	return counters(b.words).read()
}

// Close ends the bypass: it closes the gate, and waits until the worker has executed the call in
// progress, or until ctx ends. cancel cancels that call.
func (b *Bypass) Close(ctx context.Context, cancel bool) error {
	b.SetOpen(false)
	var err error
	if !isClosed(b.done) {
		m, failed := b.worker.conn.Call(ctx, typeBypassEnd, bypassMessage{ID: b.id, Cancel: cancel})
		if err = failed; err == nil {
			m.Close()
		}
	}
	b.end()
	return err
}

// end wakes the other processes and frees the memory of this one.
func (b *Bypass) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	if b.words != nil {
		b.last = counters(b.words).read()
	}
	if b.gate != nil {
		b.gate.set(false)
	}
	memfd.Unmap(b.gate)
	memfd.Unmap(b.words)
	if b.ring != nil {
		_ = b.ring.Close(shm.Done)
		b.ring.Unmap() // closes its file
	}
	for _, f := range b.files[min(1, len(b.files)):] {
		_ = f.Close()
	}
	b.worker.bypasses.remove(b)
	close(b.done)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// openBypasses are the bypasses to a worker that have not ended.
type openBypasses struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*Bypass
}

func (o *openBypasses) number() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	return o.last
}

func (o *openBypasses) add(b *Bypass) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[uint64]*Bypass{}
	}
	o.open[b.id] = b
}

func (o *openBypasses) remove(b *Bypass) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, b.id)
}

// end ends all bypasses. The process has ended, and no more are opened.
func (o *openBypasses) end() {
	o.mu.Lock()
	var all []*Bypass
	for _, b := range o.open {
		all = append(all, b)
	}
	o.mu.Unlock()
	for _, b := range all {
		b.end()
	}
}
