package session

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Sink is the writing end of a ring.
type Sink interface {
	// Reserve waits until at least n bytes can be written and returns all writable bytes, as one
	// contiguous part of ring memory.
	Reserve(n int) ([]byte, error)
	// Commit passes the first n bytes of the last Reserve to the reader.
	Commit(n int)
}

// Writer writes messages to a ring. Several goroutines may call its methods; messages are never
// interleaved.
type Writer struct {
	area  int
	bytes atomic.Uint64

	// onReply is called with the call's number when the last message of a reply is sent.
	onReply atomic.Pointer[func(call uint32)]

	mu     sync.Mutex
	sink   Sink
	serial uint64
	broken error
}

// NewWriter returns a Writer to sink, the writing end of a ring whose area has area bytes.
func NewWriter(sink Sink, area int) *Writer { return &Writer{sink: sink, area: area} }

// Bytes returns the number of sent bytes, without padding.
func (w *Writer) Bytes() uint64 { return w.bytes.Load() }

// OnReply has f called whenever the last message of a reply is sent, with the number of its call; f
// must neither wait nor send. A nil f ends that.
func (w *Writer) OnReply(f func(call uint32)) {
	if f == nil {
		w.onReply.Store(nil)
		return
	}
	w.onReply.Store(&f)
}

func (w *Writer) replied(h *Header) {
	if f := w.onReply.Load(); f != nil && h.Flags&(IsReply|More) == IsReply {
		(*f)(h.Call)
	}
}

// Send writes one message with a body and bulk that are in memory. The header's
// Size, Bulk and Serial are filled in.
func (w *Writer) Send(h Header, body []byte, bulk ...[]byte) error {
	h.Bulk = 0
	for _, b := range bulk {
		h.Bulk += uint64(len(b))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	head, err := w.begin(&h, body)
	if err != nil {
		return err
	}
	total := uint64(h.Size) + h.Bulk + uint64(padding(h.Bulk))
	if total <= uint64(w.area/2) {
		return w.sendSmall(&head, body, bulk, int(total))
	}
	if err := w.copy(head[:], body); err != nil {
		return err
	}
	for _, b := range bulk {
		if err := w.copy(b); err != nil {
			return err
		}
	}
	return w.copy(make([]byte, padding(h.Bulk)))
}

func (w *Writer) sendSmall(head *[HeaderSize]byte, body []byte, bulk [][]byte, total int) error {
	b, err := w.sink.Reserve(total)
	if err != nil {
		return w.fail(err)
	}
	n := copy(b, head[:])
	n += copy(b[n:], body)
	for _, p := range bulk {
		n += copy(b[n:], p)
	}
	clear(b[n:total])
	w.sink.Commit(total)
	return nil
}

// Piece writes one message with n bytes of bulk, which fill writes directly into ring memory. When
// fill fails nothing is sent, and the caller may send another message instead. Other senders wait
// while fill runs, so fill must not wait for them.
func (w *Writer) Piece(h Header, body []byte, n int, fill func(piece []byte) error) error {
	start := HeaderSize + len(body)
	if n < 1 || start+n > w.area/2 {
		return fmt.Errorf("session: piece of %d bytes in an area of %d", start+n, w.area)
	}
	h.Bulk = uint64(n)
	total := start + n + padding(h.Bulk)
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.sink.Reserve(total)
	if err != nil {
		return w.fail(err)
	}
	if err := fill(b[start : start+n : start+n]); err != nil {
		return err
	}
	head, err := w.begin(&h, body)
	if err != nil {
		return err
	}
	copy(b, head[:])
	copy(b[HeaderSize:], body)
	clear(b[start+n : total])
	w.sink.Commit(total)
	return nil
}

// begin completes and encodes the header of the next message.
func (w *Writer) begin(h *Header, body []byte) (head [HeaderSize]byte, err error) {
	if w.broken != nil {
		return head, w.broken
	}
	if len(body)%8 != 0 || len(body) > MaxSize-HeaderSize {
		return head, fmt.Errorf("session: body of %d bytes", len(body))
	}
	h.Size = uint32(HeaderSize + len(body))
	h.Serial = w.serial + 1
	if err := h.validate(h.Serial); err != nil {
		return head, err
	}
	w.serial++
	w.bytes.Add(uint64(h.Size) + h.Bulk)
	h.put(head[:])
	w.replied(h)
	return head, nil
}

// copy writes the parts, as space becomes available.
func (w *Writer) copy(parts ...[]byte) error {
	for _, p := range parts {
		for len(p) > 0 {
			b, err := w.sink.Reserve(1)
			if err != nil {
				return w.fail(err)
			}
			n := copy(b, p)
			w.sink.Commit(n)
			p = p[n:]
		}
	}
	return nil
}

// fail records that a message may be truncated: no message may follow it.
func (w *Writer) fail(err error) error {
	w.broken = err
	return err
}
