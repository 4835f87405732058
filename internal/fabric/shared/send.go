package shared

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

func isBreach(err error) bool {
	var e *outboard.Error
	return errors.As(err, &e) && e.Kind == outboard.Protocol
}

// send posts d with a head and a message of at most a block. It waits for room,
// unless ctx is nil. It does not keep head or data; data that was lent by this end
// belongs to the peer once it returns nil.
func (e *end) send(ctx context.Context, p call.Priority, d *desc, head, data []byte) error {
	if len(head) > maxHead || len(head) > e.heap.maxBlock() {
		return status.Errorf(codes.ResourceExhausted, "head of %d bytes: %d are allowed", len(head), maxHead)
	}
	d.headLen, d.dataLen = uint32(len(head)), uint32(len(data))
	d.head.unit, d.data.unit = nowhere, nowhere
	if piece, ok := e.heap.owner(data); ok {
		d.data, data = piece, nil
		d.flags |= copyFlag(e.heap.hand(piece, posted))
	}
	mine := d.data
	err := e.place(ctx, p, d, &head, &data)
	if err == nil {
		err = e.get(ctx, ringRoom, p, func() (bool, error) { return e.out.post(d, head, data) })
	}
	if err != nil {
		e.takeBack(d, mine)
	}
	return err
}

// place finds heap memory for what does not fit into the slot.
func (e *end) place(ctx context.Context, p call.Priority, d *desc, head, data *[]byte) error {
	if len(*data) > inlineSize || len(*head) <= inlineSize && len(*head)+len(*data) > inlineSize {
		if err := e.store(ctx, p, d, &d.data, data); err != nil {
			return err
		}
	}
	if len(*head)+len(*data) > inlineSize {
		return e.store(ctx, p, d, &d.head, head)
	}
	return nil
}

func (e *end) store(ctx context.Context, p call.Priority, d *desc, at *ref, b *[]byte) error {
	piece, err := e.alloc(ctx, p, len(*b))
	if err != nil {
		return err
	}
	copy(e.heap.bytes(piece), *b)
	d.flags |= copyFlag(e.heap.hand(piece, posted))
	*at, *b = piece, nil
	return nil
}

func copyFlag(short bool) uint8 {
	if short {
		return flagCopy
	}
	return 0
}

func (e *end) alloc(ctx context.Context, p call.Priority, size int) (piece ref, err error) {
	err = e.get(ctx, heapRoom, p, func() (ok bool, err error) {
		piece, ok, err = e.heap.alloc(size)
		return ok, err
	})
	return piece, err
}

// takeBack frees what a descriptor that was not posted refers to; what was lent
// is the sender's again.
func (e *end) takeBack(d *desc, mine ref) {
	if mine.unit != nowhere {
		e.heap.hand(mine, lent)
	} else if d.data.unit != nowhere {
		e.drop(d.data)
	}
	if d.head.unit != nowhere {
		e.drop(d.head)
	}
}

func (e *end) drop(piece ref) {
	e.heap.hand(piece, lent)
	e.free(piece)
}

// free gives memory of ours back that the peer never saw.
func (e *end) free(piece ref) {
	e.heap.free(piece)
	if e.hungry.Load() > 0 {
		e.feed()
	}
}

// Lend implements Lender.
func (e *end) Lend(size int) (*call.Message, error) {
	if size <= inlineSize || size > e.heap.maxBlock() || !e.region.tryRetain() {
		return private(size), nil
	}
	piece, err := e.alloc(nil, call.Normal, size) //nolint:staticcheck // nil says that we don't wait
	if err != nil {
		e.region.release()
		if errors.Is(err, errCrowded) {
			return private(size), nil
		}
		return nil, err
	}
	return &call.Message{Data: e.heap.bytes(piece)[:size], Release: func() {
		e.free(piece)
		e.region.release()
	}}, nil
}
