package shared

import (
	"context"
	"errors"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// errHeadTooLong is the error of metadata or a status that does not fit into a descriptor's head.
var errHeadTooLong = status.Errorf(codes.ResourceExhausted, "metadata or status exceeds the limit of %d bytes", maxHead)

func isViolation(err error) bool {
	var e *outboard.Error
	return errors.As(err, &e) && e.Kind == outboard.Protocol
}

// send posts d with a head and a message of at most a block. It blocks while there is no space,
// unless ctx is nil. It keeps neither head nor data; data that was lent by this end belongs to
// the peer once send returns nil.
func (e *laneEnd) send(ctx context.Context, p call.Priority, d *desc, head, data []byte) error {
	if len(head) > maxHead || len(head) > e.heap.maxBlock() {
		return errHeadTooLong
	}
	d.headLen, d.dataLen = uint32(len(head)), uint32(len(data))
	d.head.unit, d.data.unit = inSlot, inSlot
	if piece, ok := e.heap.owner(data); ok {
		d.data, data = piece, nil
		d.flags |= copyFlag(e.heap.setState(piece, unitPosted))
	}
	mine := d.data
	err := e.moveToHeap(ctx, p, d, &head, &data)
	if err == nil {
		err = e.acquire(ctx, ringSlot, p, func() (bool, error) { return e.out.post(d, head, data) })
	}
	if err != nil {
		e.revertHeap(d, mine)
	}
	return err
}

// moveToHeap moves the parts that do not fit into the slot to the heap.
func (e *laneEnd) moveToHeap(ctx context.Context, p call.Priority, d *desc, head, data *[]byte) error {
	if len(*data) > inlineSize || len(*head) <= inlineSize && len(*head)+len(*data) > inlineSize {
		if err := e.copyToHeap(ctx, p, d, &d.data, data); err != nil {
			return err
		}
	}
	if len(*head)+len(*data) > inlineSize {
		return e.copyToHeap(ctx, p, d, &d.head, head)
	}
	return nil
}

func (e *laneEnd) copyToHeap(ctx context.Context, p call.Priority, d *desc, at *ref, b *[]byte) error {
	piece, err := e.alloc(ctx, p, len(*b))
	if err != nil {
		return err
	}
	copy(e.heap.bytes(piece), *b)
	d.flags |= copyFlag(e.heap.setState(piece, unitPosted))
	*at, *b = piece, nil
	return nil
}

func copyFlag(short bool) uint8 {
	if short {
		return flagCopy
	}
	return 0
}

func (e *laneEnd) alloc(ctx context.Context, p call.Priority, size int) (piece ref, err error) {
	err = e.acquire(ctx, heapSpace, p, func() (ok bool, err error) {
		piece, ok, err = e.heap.alloc(size)
		return ok, err
	})
	return piece, err
}

// revertHeap frees the blocks of a descriptor that was not posted; a lent block belongs to the
// sender again.
func (e *laneEnd) revertHeap(d *desc, mine ref) {
	if mine.unit != inSlot {
		e.heap.setState(mine, unitLent)
	} else if d.data.unit != inSlot {
		e.freePosted(d.data)
	}
	if d.head.unit != inSlot {
		e.freePosted(d.head)
	}
}

func (e *laneEnd) freePosted(piece ref) {
	e.heap.setState(piece, unitLent)
	e.free(piece)
}

// free releases a block that the peer never saw.
func (e *laneEnd) free(piece ref) {
	e.heap.free(piece)
	if e.blockedSenders.Load() > 0 {
		e.wakeSenders()
	}
}

// Lend implements Lender.
func (e *laneEnd) Lend(size int) (*call.Message, error) {
	if size > e.heap.maxBlock() {
		if m, err := lendRun(e, size); m != nil || err != nil {
			return m, err
		}
		buf := e.conn.buffers.Get(size)
		return e.conn.buffers.Message(buf, buf.Data[:size:size], false), nil
	}
	if size <= inlineSize || !e.region.tryRetain() {
		return newMessage(size), nil
	}
	piece, err := e.alloc(nil, call.Normal, size) //nolint:staticcheck // nil: do not block
	if err != nil {
		e.region.release()
		if errors.Is(err, errWouldBlock) {
			return newMessage(size), nil
		}
		return nil, err
	}
	return &call.Message{Data: e.heap.bytes(piece)[:size], Release: func() {
		e.free(piece)
		e.region.release()
	}}, nil
}

// lendRun lends adjacent blocks for a message that exceeds one, nil if there are none. They are sent as
// chunks, and a receiver that finds them adjacent reads the message in place.
func lendRun(e *laneEnd, size int) (*call.Message, error) {
	if size > e.heap.maxRun() || !e.region.tryRetain() {
		return nil, nil //nolint:nilnil // there is none
	}
	var run []ref
	err := e.acquire(nil, heapSpace, call.Normal, func() (ok bool, err error) { //nolint:staticcheck // nil: do not block
		run, err = e.heap.allocRun(size)
		return run != nil, err
	})
	if run == nil {
		e.region.release()
		if errors.Is(err, errWouldBlock) {
			err = nil
		}
		return nil, err
	}
	data := unsafe.Slice(unsafe.SliceData(e.heap.bytes(run[0])), size)
	return &call.Message{Data: data, Release: func() {
		for _, piece := range run {
			e.free(piece)
		}
		e.region.release()
	}}, nil
}
