package worker

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// Frames in the ring consist of a length of 8 bytes, and a body of words as internal/wire encodes
// them.
const (
	ringArea = 512 << 10
	maxFrame = ringArea / 4

	maxTensors = 4096 // of one frame
	maxRank    = 64   // dimensions of a tensor
)

// The operations of frames from the node.
const (
	opInfer  = 1
	opCancel = 2
)

// A request is a frame from the node.
type request struct {
	op      uint64
	id      uint64
	segment uint64
	// sequence is the sequence of the request, for a stateful model.
	sequence model.Sequence
	// outputOffset is the offset in the segment at which the memory for outputs begins.
	outputOffset uint64
	inputs       []placed
	outputs      []string
}

// A placed tensor is a tensor whose data lies in a segment.
type placed struct {
	model.Tensor
	// extra is the index of a segment that the worker created plus one, 0 for the segment of the
	// call.
	extra        uint64
	offset, size uint64
}

// A reply is a frame from the worker.
type reply struct {
	id      uint64
	kind    uint64
	failure string // "" for success
	outputs []placed
}

func (r *request) encode(e *wire.Encoder) {
	e.U64(r.op)
	e.U64(r.id)
	e.U64(r.segment)
	e.U64(r.outputOffset)
	e.I64(r.sequence.Number)
	e.U64(sequenceMarks(r.sequence))
	encodePlaced(e, r.inputs)
	e.U64(uint64(len(r.outputs)))
	for _, name := range r.outputs {
		e.String(name, true)
	}
}

func (r *request) decode(d *wire.Decoder) error {
	r.op, r.id, r.segment, r.outputOffset = d.U64(), d.U64(), d.U64(), d.U64()
	number, marks := d.I64(), d.U64()
	if marks > markStart|markEnd {
		return errFrame
	}
	r.sequence = model.Sequence{Number: number, Start: marks&markStart != 0, End: marks&markEnd != 0}
	var err error
	if r.inputs, err = decodePlaced(d); err != nil {
		return err
	}
	n := d.U64()
	if n > maxTensors {
		return errFrame
	}
	for range n {
		name, _ := d.String()
		r.outputs = append(r.outputs, name)
	}
	return d.Done()
}

// The marks of a request in its sequence.
const (
	markStart = 1 << iota
	markEnd
)

func sequenceMarks(q model.Sequence) (marks uint64) {
	if q.Start {
		marks |= markStart
	}
	if q.End {
		marks |= markEnd
	}
	return marks
}

func (r *reply) encode(e *wire.Encoder) {
	e.U64(r.id)
	e.U64(r.kind)
	e.String(r.failure, true)
	encodePlaced(e, r.outputs)
}

func (r *reply) decode(d *wire.Decoder) error {
	r.id, r.kind = d.U64(), d.U64()
	r.failure, _ = d.String()
	var err error
	if r.outputs, err = decodePlaced(d); err != nil {
		return err
	}
	return d.Done()
}

func encodePlaced(e *wire.Encoder, list []placed) {
	e.U64(uint64(len(list)))
	for i := range list {
		p := &list[i]
		e.String(p.Name, true)
		e.U64(uint64(p.Type))
		e.U64(uint64(len(p.Shape)))
		for _, d := range p.Shape {
			e.I64(d)
		}
		e.U64(p.extra)
		e.U64(p.offset)
		e.U64(p.size)
	}
}

var errFrame = outboard.Errorf(outboard.Protocol, "tensors in shared memory", "a malformed frame")

// decodePlaced decodes tensors without their data. It checks the shapes against the sizes.
func decodePlaced(d *wire.Decoder) ([]placed, error) {
	n := d.U64()
	if n > maxTensors {
		return nil, errFrame
	}
	var list []placed
	for range n {
		var p placed
		p.Name, _ = d.String()
		kind, rank := d.U64(), d.U64()
		if rank > maxRank || kind == 0 || kind > uint64(model.Bytes) || d.Err() != nil {
			return nil, errFrame
		}
		p.Type, p.Shape = model.DataType(kind), make([]int64, rank)
		for i := range p.Shape {
			p.Shape[i] = d.I64()
		}
		p.extra, p.offset, p.size = d.U64(), d.U64(), d.U64()
		elements, ok := model.Elements(p.Shape)
		if !ok || elements > maxSegment || p.Type != model.Bytes && p.size != uint64(elements*p.Type.Size()) {
			return nil, errFrame
		}
		list = append(list, p)
	}
	return list, d.Err()
}

// within returns the bytes of a tensor in mem, or an error if they are not within it.
func (p *placed) within(mem []byte) ([]byte, error) {
	if p.offset > uint64(len(mem)) || p.size > uint64(len(mem))-p.offset {
		return nil, errFrame
	}
	return mem[p.offset : p.offset+p.size : p.offset+p.size], nil
}

// A channel sends frames through a ring; any number of goroutines may send.
type channel struct {
	ring *shm.Ring
	mu   sync.Mutex
	e    wire.Encoder
}

type encodable interface{ encode(e *wire.Encoder) }

// send sends a frame. It waits for space.
func (c *channel) send(frame encodable) error { return c.sendTo(frame, c.ring.Reserve) }

// sendNow sends a frame. It fails if there is no space.
func (c *channel) sendNow(frame encodable) error {
	return c.sendTo(frame, func(size int) ([]byte, error) {
		if space := c.ring.TryReserve(); len(space) >= size {
			return space, nil
		}
		return nil, errFrame
	})
}

func (c *channel) sendTo(frame encodable, reserve func(size int) ([]byte, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.e = wire.NewEncoder(c.e.Body())
	frame.encode(&c.e)
	body := c.e.Body()
	if len(body) > maxFrame {
		return outboard.Errorf(outboard.Exhausted, "", "the names and shapes of the tensors have %d bytes, and %d are allowed", len(body), maxFrame)
	}
	space, err := reserve(8 + len(body))
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(space, uint64(len(body)))
	copy(space[8:], body)
	c.ring.Commit(8 + len(body))
	return nil
}

// maxReceive bounds a wait for a frame of a goroutine that has nothing else to do.
const maxReceive = time.Hour

// receive calls handle with the bodies of frames until the ring is closed or handle fails.
func (c *channel) receive(handle func(d wire.Decoder) error) error {
	for {
		if _, err := c.receiveWithin(maxReceive, handle); err != nil {
			return err
		}
	}
}

// receiveWithin calls handle with the body of the next frame. It waits for the frame at most for
// limit, also if the peer has sent only a part of it, and reports whether it came.
//
// It yields before it waits. A goroutine that handle started or woke is in the queue of this
// goroutine's processor (P), which a waiting Ring holds while it spins or sleeps: the goroutine
// would run only on another processor, which has to wake first.
func (c *channel) receiveWithin(limit time.Duration, handle func(d wire.Decoder) error) (received bool, err error) {
	if c.ring.TryNext() == nil {
		runtime.Gosched()
	}
	until := time.Now().Add(limit)
	if !c.ring.AwaitNext(8, limit) {
		return false, nil
	}
	b, err := c.ring.Next(8)
	if err != nil {
		return false, err
	}
	size := binary.LittleEndian.Uint64(b)
	if size > maxFrame {
		return false, errors.Join(errFrame, c.ring.Close(shm.Corrupt))
	}
	if !c.ring.AwaitNext(8+int(size), time.Until(until)) {
		return false, nil
	}
	if b, err = c.ring.Next(8 + int(size)); err != nil {
		return false, err
	}
	body := slices.Clone(b[8 : 8+size]) // the peer may change the ring's memory
	c.ring.Release(8 + int(size))
	if err := handle(wire.NewDecoder(body)); err != nil {
		return false, errors.Join(err, c.ring.Close(shm.Corrupt))
	}
	return true, nil
}
