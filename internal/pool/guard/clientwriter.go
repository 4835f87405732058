package guard

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

const (
	// chunkSize is how many bytes are written to a client at a time, and how many a writer collects
	// at most before it writes them.
	chunkSize = 64 << 10
	// chunkTimeout is how long a client may make a chunk wait.
	chunkTimeout = 10 * time.Second
)

// clientWriter writes whole operations to the client, for both directions: the guard answers refused
// requests itself. It keeps what the client has not read, and counts it for the client. The server's
// connection is read without delay, so the server, which bounds each connection by itself and by much,
// keeps nothing for the client.
type clientWriter struct {
	client io.WriteCloser
	held   *holding
	wake   chan struct{} // has a value when pending is to be written

	mu       sync.Mutex
	pending  []byte
	finished bool  // nothing is added any more
	err      error // why nothing is written any more
}

func newClientWriter(client io.WriteCloser, held *holding) *clientWriter {
	return &clientWriter{client: client, held: held, wake: make(chan struct{}, 1)}
}

// add adds an operation, whose parts are not kept, and writes it at once or with a later one.
func (w *clientWriter) add(atOnce bool, parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if err := w.held.reserve(size); err != nil {
		return err
	}
	for _, part := range parts {
		w.pending = append(w.pending, part...)
	}
	if atOnce || len(w.pending) >= chunkSize {
		w.notify()
	}
	return nil
}

// message adds a message without a header, and writes it at once.
func (w *clientWriter) message(subject, sid string, body []byte) error {
	return w.add(true, fmt.Appendf(nil, "MSG %s %s %d\r\n", subject, sid, len(body)), body, lineEnd)
}

var lineEnd = []byte("\r\n")

// flush has the operations written that were added.
func (w *clientWriter) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notify()
	return w.err
}

// finish has run return when all operations are written, or at once if nothing was added any more
// because of the client's account.
func (w *clientWriter) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
	if w.err == nil && outboard.KindOf(err) == outboard.Busy {
		w.err = err
		_ = w.client.Close() // A write to it may be in progress.
	}
	w.notify()
}

func (w *clientWriter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes operations until the writer is finished, or the client reads no more.
func (w *clientWriter) run() {
	var out []byte
	for range w.wake {
		for more, finished := true, false; more; {
			if out, more, finished = w.take(out); finished {
				return
			}
			err := w.write(out)
			w.held.release(len(out))
			if cap(out) > chunkSize {
				out = nil
			}
			if err != nil {
				w.fail(err)
				return
			}
		}
	}
}

// take returns the operations to write next, none if there are no more, in place of a buffer that was
// written. It reports whether nothing is written any more.
func (w *clientWriter) take(written []byte) (out []byte, more, finished bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, false, true
	}
	out, w.pending = w.pending, written[:0]
	return out, len(out) > 0, len(out) == 0 && w.finished
}

// refusal returns the error for which the client gets no more, if that is its account's.
func (w *clientWriter) refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if outboard.KindOf(w.err) == outboard.Busy {
		return w.err
	}
	return nil
}

func (w *clientWriter) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// write writes operations to the client, which has to read each chunk in time.
func (w *clientWriter) write(out []byte) error {
	conn, hasDeadline := w.client.(interface{ SetWriteDeadline(t time.Time) error })
	for len(out) > 0 {
		if hasDeadline {
			if err := conn.SetWriteDeadline(time.Now().Add(chunkTimeout)); err != nil {
				return err
			}
		}
		n, err := w.client.Write(out[:min(len(out), chunkSize)])
		if err != nil {
			return err
		}
		out = out[n:]
	}
	return nil
}
