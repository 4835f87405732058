package shared

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm"
)

// A producer posts descriptors in one direction. A slot is published by its sequence number: its
// index in the endless sequence of slots, plus one.
type producer struct {
	slots unsafe.Pointer
	n     uint32
	words struct{ taken, want *atomic.Uint32 }
	bell  shm.Bell // the consumer's bell

	mu                 sync.Mutex
	produced, consumed uint32 // private copies; the shared words are only trusted within bounds
}

func newProducer(r *region, direction int) *producer {
	p := &producer{slots: r.slotsOf(direction), n: uint32(r.slots), bell: r.bell(direction)}
	p.words.taken, p.words.want = r.word(direction, offConsumed), r.word(direction, offWant)
	return p
}

func (r *region) bell(direction int) shm.Bell {
	return shm.Bell{Word: r.word(direction, offBell), Sleeper: r.word(direction, offSleeper), Notify: r.notifyPeer}
}

// post publishes d with the content of its slot. It returns false if the ring is full: then the
// consumer rings this side's bell when there is space.
func (p *producer) post(d *desc, head, data []byte) (bool, error) {
	p.mu.Lock()
	ok, err := p.hasSpace()
	if ok {
		p.write(d, head, data)
	}
	p.mu.Unlock()
	if ok {
		p.bell.Ring()
	}
	return ok, err
}

func (p *producer) hasSpace() (bool, error) {
	if p.produced-p.consumed < p.n {
		return true, nil
	}
	if ok, err := p.refreshConsumed(); ok || err != nil {
		return ok, err
	}
	p.words.want.Store(1)
	return p.refreshConsumed()
}

// refreshConsumed reads the consumer's index, and reports whether there is space.
func (p *producer) refreshConsumed() (bool, error) {
	taken := p.words.taken.Load()
	if taken-p.consumed > p.produced-p.consumed {
		return false, outboard.Errorf(outboard.Protocol, "ring", "the index of the consumer is %d, not between %d and %d", taken, p.consumed, p.produced)
	}
	p.consumed = taken
	return p.produced-p.consumed < p.n, nil
}

func (p *producer) write(d *desc, head, data []byte) {
	slot := unsafe.Add(p.slots, uintptr(p.produced&(p.n-1))*slotSize)
	d.put(slot)
	inline := inlineOf(slot)
	copy(inline[copy(inline, head):], data)
	p.produced++
	sequence(slot).Store(p.produced)
}

// A consumer reads descriptors of one direction. Only the reader of its end uses it.
type consumer struct {
	slots               unsafe.Pointer
	n                   uint32
	words               struct{ taken, want *atomic.Uint32 }
	producer            shm.Bell // rung when the producer waits for space
	consumed, published uint32
}

func newConsumer(r *region, direction int) *consumer {
	c := &consumer{slots: r.slotsOf(direction), n: uint32(r.slots), producer: r.bell(direction ^ 1)}
	c.words.taken, c.words.want = r.word(direction, offConsumed), r.word(direction, offWant)
	return c
}

// next copies the next descriptor; slot is nil when there is none.
func (c *consumer) next(d *desc) (slot unsafe.Pointer, err error) {
	slot = unsafe.Add(c.slots, uintptr(c.consumed&(c.n-1))*slotSize)
	switch seq := sequence(slot).Load(); seq {
	case c.consumed + 1:
		d.get(slot)
		return slot, nil
	case c.consumed + 1 - c.n:
		return nil, nil //nolint:nilnil // an empty ring is no error
	default:
		if seq == 0 && c.consumed < c.n {
			return nil, nil //nolint:nilnil // a slot that was never used
		}
		return nil, outboard.Errorf(outboard.Protocol, "ring", "sequence number %d in slot %d", seq, c.consumed)
	}
}

// waiting reports whether there is a descriptor.
func (c *consumer) waiting() bool {
	slot := unsafe.Add(c.slots, uintptr(c.consumed&(c.n-1))*slotSize)
	return sequence(slot).Load() == c.consumed+1
}

// advance frees the slot; the producer learns of it after a quarter of the ring.
func (c *consumer) advance() {
	c.consumed++
	if c.consumed-c.published >= c.n/4 {
		c.publish()
	}
}

// publish writes the consumer's index. The reader calls it before it sleeps.
func (c *consumer) publish() {
	if c.published == c.consumed {
		return
	}
	c.published = c.consumed
	c.words.taken.Store(c.consumed)
	notifyWaiting(c.words.want, c.producer)
}

// notifyWaiting rings bell if the other side waits for space.
func notifyWaiting(want *atomic.Uint32, bell shm.Bell) {
	if want.Load() != 0 && want.Swap(0) != 0 {
		bell.Ring()
	}
}
