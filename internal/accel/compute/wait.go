package compute

import (
	"errors"
	"io"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// wait is a caller that waits for a reply.
type wait struct {
	call  uint32
	op    uint16
	owner owner
	done  chan struct{}

	mu     sync.Mutex
	to     []byte // destination of the rest of the bulk; nil after abandon
	status int32
	body   []byte
	err    error
}

// fill copies the bulk of a message to the caller's memory. The reader skips bytes beyond that.
func (w *wait) fill(in *session.Reader) error {
	for {
		b, err := in.NextBulk()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		w.mu.Lock()
		given := len(w.to) == 0
		w.to = w.to[copy(w.to, b):]
		w.mu.Unlock()
		if given {
			return nil
		}
	}
}

// abandon prevents further writes to the caller's memory.
func (w *wait) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = nil
}

func (w *wait) end(status int32, body []byte, err error) {
	w.mu.Lock()
	if err == nil && status == 0 && len(w.to) > 0 {
		err = outboard.Errorf(outboard.Protocol, "session", "%d bytes of a read did not come", len(w.to))
	}
	w.status, w.body, w.err = status, body, err
	w.mu.Unlock()
	close(w.done)
}

// result returns the outcome of the call, once done is closed.
func (w *wait) result() (body []byte, err error) {
	switch {
	case w.err != nil:
		return nil, w.err
	case w.status != 0:
		return w.body, StatusError(w.status)
	}
	return w.body, nil
}
