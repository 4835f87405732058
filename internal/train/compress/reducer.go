package compress

import (
	"context"
	"sync"
	"unsafe"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/collective"
)

// A Group makes collective calls. *collective.Group implements it.
type Group interface {
	Rank() int
	Size() int
	Do(ctx context.Context, c collective.Call, buf []byte) error
	Start(ctx context.Context, c collective.Call, buf []byte) (wait func() error)
	Lost() collective.Losses
}

var _ Group = (*collective.Group)(nil)

// A Reducer sums over a group as its Spec says. Its calls are made one after the other, by one
// goroutine, as those of all other ranks are.
type Reducer struct {
	group Group
	spec  Spec
	left  residuals
	piece int // size of the temporary buffer, in bytes

	mu    sync.Mutex
	stats Stats
}

// Stats counts the sums of a Reducer.
type Stats struct {
	// Calls is the number of calls that were compressed, Bytes the size of their buffers and Sent
	// the bytes that a rank has sent instead.
	Calls int   `json:"calls"`
	Bytes int64 `json:"bytes"`
	Sent  int64 `json:"sent"`
	// Dropped of Offered parts were lost.
	Dropped uint64 `json:"dropped,omitempty"`
	Offered uint64 `json:"offered,omitempty"`
	// Repeated parts were sent again because their datagrams had been lost.
	Repeated uint64 `json:"repeated,omitempty"`
}

// Check returns an error if counts that another node has sent can't be counts: metrics do not
// decrease.
func (s *Stats) Check() error {
	if s.Calls < 0 || s.Bytes < 0 || s.Sent < 0 {
		return outboard.Errorf(outboard.Protocol, "sums", "%d calls with %d bytes, of which %d were sent", s.Calls, s.Bytes, s.Sent)
	}
	return nil
}

// Add adds the counts of another reducer.
func (s *Stats) Add(t Stats) {
	s.Calls, s.Bytes, s.Sent = s.Calls+t.Calls, s.Bytes+t.Bytes, s.Sent+t.Sent
	s.Dropped, s.Offered = s.Dropped+t.Dropped, s.Offered+t.Offered
	s.Repeated += t.Repeated
}

// New returns a Reducer over a group. held counts the memory of its residuals and buffers.
func New(g Group, s Spec, held *Memory) *Reducer {
	return &Reducer{group: g, spec: s, left: residuals{held: held}, piece: pieceBytes}
}

// Stats returns the counts of the Reducer's sums so far. It may be used during a call.
func (r *Reducer) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	l := r.group.Lost()
	s.Dropped, s.Offered, s.Repeated = l.Dropped, l.Offered, l.Repeated
	return s
}

// Do makes a call on buf, in place: compressed if the Spec applies to it, else as the group does.
// key names the program's buffer: elements that a call has not sent are added to the next call with
// the same key and size.
func (r *Reducer) Do(ctx context.Context, c collective.Call, buf []byte, key uint64) error {
	if !r.spec.applies(&c) || len(buf) != c.Bytes() {
		return r.group.Do(ctx, c, buf)
	}
	switch r.spec.Method {
	case Half:
		return r.half(ctx, c, buf)
	case TopK:
		return r.topK(ctx, c, buf, key)
	case Store:
		c.Store = true
		r.count(len(buf), len(buf))
		return r.group.Do(ctx, c, buf)
	default:
		c.Loss = int(1000 * r.spec.Fraction)
		r.count(len(buf), len(buf))
		return r.group.Do(ctx, c, buf)
	}
}

// Start begins a call as Do does, and returns the function that waits until buf has the result, which
// may be called once. A compressed call has ended when Start returns; see [collective.Group.Start].
func (r *Reducer) Start(ctx context.Context, c collective.Call, buf []byte, key uint64) (wait func() error) {
	if !r.spec.applies(&c) {
		return r.group.Start(ctx, c, buf)
	}
	err := r.Do(ctx, c, buf, key)
	return func() error { return err }
}

// count counts a call on a buffer of that many bytes, for which sent bytes are sent.
func (r *Reducer) count(bytes, sent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Add(Stats{Calls: 1, Bytes: int64(bytes), Sent: int64(sent)})
}

// half sums as float16, piece by piece. The values are divided by the number of ranks first, so that
// the sum overflows only if the average does.
func (r *Reducer) half(ctx context.Context, c collective.Call, buf []byte) error {
	values := floats(buf)
	size := (min(len(values), r.piece/2)*2 + 7) / 8
	if err := r.left.held.Buffers.Reserve(int64(8 * size)); err != nil {
		return err
	}
	defer r.left.held.Buffers.Release(int64(8 * size))
	words := make([]uint64, size) // aligned to all elements
	r.count(len(buf), len(buf)/2)
	for len(values) > 0 {
		n := min(len(values), r.piece/2)
		if err := r.halfPiece(ctx, c, values[:n], unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(words))), n)); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// halfPiece sums values by way of halves, which has their length.
func (r *Reducer) halfPiece(ctx context.Context, c collective.Call, values []float32, halves []uint16) error {
	n := float32(r.group.Size())
	for i, v := range values {
		halves[i] = collective.ToFloat16(v / n)
	}
	sum := c
	sum.Element, sum.Reduction, sum.Count = collective.Float16, collective.Sum, len(halves)
	if err := r.group.Do(ctx, sum, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(halves))), 2*len(halves))); err != nil {
		return err
	}
	if c.Reduction == collective.Average {
		n = 1
	}
	for i, h := range halves {
		values[i] = collective.FromFloat16(h) * n
	}
	return nil
}

// floats returns the bytes of a buffer that is aligned to its elements as float32.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
