package shared

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm"
)

// A producer puts descriptors into one direction. A slot is published by its
// sequence number: its position in the endless row of slots, plus one.
type producer struct {
	slots unsafe.Pointer
	n     uint32
	words struct{ taken, want *atomic.Uint32 }
	bell  shm.Bell // the consumer's

	mu          sync.Mutex
	head, taken uint32 // ours; the shared words are only believed within bounds
}

func newProducer(r *region, direction int) *producer {
	p := &producer{slots: r.slotsOf(direction), n: uint32(r.slots), bell: r.bell(direction)}
	p.words.taken, p.words.want = r.word(direction, offTaken), r.word(direction, offWant)
	return p
}

func (r *region) bell(direction int) shm.Bell {
	return shm.Bell{Word: r.word(direction, offBell), Sleeper: r.word(direction, offSleeper)}
}

// post publishes d with what lies in its slot. It is false when the ring is full;
// then the consumer rings our bell when there is room.
func (p *producer) post(d *desc, head, data []byte) (bool, error) {
	p.mu.Lock()
	ok, err := p.room()
	if ok {
		p.write(d, head, data)
	}
	p.mu.Unlock()
	if ok {
		p.bell.Ring()
	}
	return ok, err
}

func (p *producer) room() (bool, error) {
	if p.head-p.taken < p.n {
		return true, nil
	}
	if ok, err := p.look(); ok || err != nil {
		return ok, err
	}
	p.words.want.Store(1)
	return p.look()
}

// look reads how far the consumer is.
func (p *producer) look() (bool, error) {
	taken := p.words.taken.Load()
	if taken-p.taken > p.head-p.taken {
		return false, outboard.Errorf(outboard.Protocol, "ring", "the consumer jumped to %d, between %d and %d", taken, p.taken, p.head)
	}
	p.taken = taken
	return p.head-p.taken < p.n, nil
}

func (p *producer) write(d *desc, head, data []byte) {
	slot := unsafe.Add(p.slots, uintptr(p.head&(p.n-1))*slotSize)
	d.put(slot)
	room := inlineOf(slot)
	copy(room[copy(room, head):], data)
	p.head++
	sequence(slot).Store(p.head)
}

// A consumer takes descriptors out of one direction. Only the reader of its end
// uses it.
type consumer struct {
	slots     unsafe.Pointer
	n         uint32
	words     struct{ taken, want *atomic.Uint32 }
	producer  shm.Bell // who waits for room
	pos, told uint32
}

func newConsumer(r *region, direction int) *consumer {
	c := &consumer{slots: r.slotsOf(direction), n: uint32(r.slots), producer: r.bell(direction ^ 1)}
	c.words.taken, c.words.want = r.word(direction, offTaken), r.word(direction, offWant)
	return c
}

// next copies the next descriptor; slot is nil when there is none.
func (c *consumer) next(d *desc) (slot unsafe.Pointer, err error) {
	slot = unsafe.Add(c.slots, uintptr(c.pos&(c.n-1))*slotSize)
	switch seq := sequence(slot).Load(); seq {
	case c.pos + 1:
		d.get(slot)
		return slot, nil
	case c.pos + 1 - c.n:
		return nil, nil //nolint:nilnil // nothing there is no error
	default:
		if seq == 0 && c.pos < c.n {
			return nil, nil //nolint:nilnil // as above: a slot that was never used
		}
		return nil, outboard.Errorf(outboard.Protocol, "ring", "the producer jumped to %d, at %d", seq, c.pos)
	}
}

// waiting says whether there is a descriptor already.
func (c *consumer) waiting() bool {
	slot := unsafe.Add(c.slots, uintptr(c.pos&(c.n-1))*slotSize)
	return sequence(slot).Load() == c.pos+1
}

// advance gives the slot back, now and then.
func (c *consumer) advance() {
	c.pos++
	if c.pos-c.told >= c.n/4 {
		c.tell()
	}
}

// tell says how far we are. It is called before the reader sleeps.
func (c *consumer) tell() {
	if c.told == c.pos {
		return
	}
	c.told = c.pos
	c.words.taken.Store(c.pos)
	satisfy(c.words.want, c.producer)
}

// satisfy rings for whoever said that it wants room.
func satisfy(want *atomic.Uint32, bell shm.Bell) {
	if want.Load() != 0 && want.Swap(0) != 0 {
		bell.Ring()
	}
}
