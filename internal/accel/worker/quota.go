package worker

import (
	"context"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
)

// nodeQuota requests device memory from the node, which counts it for the whole lease. The reader
// of the control connection adds an answer to the worker's quota, so that a reclaim that the node
// sent later can't overtake it.
type nodeQuota struct {
	ctx     context.Context //nolint:containedctx // of the session: the dispatcher has none
	conn    *control.Conn
	answers chan uint64
}

// Reserve asks the node for more memory and waits for its answer.
func (q *nodeQuota) Reserve(bytes uint64) (granted uint64) {
	if q.conn.Send(control.Message{Type: control.TypeReserve, Bytes: outboard.Bytes(bytes)}) != nil {
		return 0
	}
	select {
	case granted = <-q.answers:
	case <-q.ctx.Done():
	}
	return granted
}

// deliver passes an answer to Reserve. The node answers only requests.
func (q *nodeQuota) deliver(bytes uint64) {
	select {
	case q.answers <- bytes:
	default:
	}
}
