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
	// before it writes them.
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
	pending  [][]byte // chunks of chunkSize at most, none of which grows
	spare    []byte   // a chunk that was written
	finished bool     // nothing is added any more
	err      error    // why nothing is written any more
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
		w.append(part)
	}
	if atOnce || len(w.pending) > 1 {
		w.notify()
	}
	return nil
}

// append copies bytes to the chunks. w.mu must be held.
func (w *clientWriter) append(b []byte) {
	for len(b) > 0 {
		last := len(w.pending) - 1
		if last < 0 || len(w.pending[last]) == chunkSize {
			chunk := w.spare
			if w.spare = nil; chunk == nil {
				chunk = make([]byte, 0, chunkSize)
			}
			w.pending = append(w.pending, chunk)
			last++
		}
		n := min(len(b), chunkSize-len(w.pending[last]))
		w.pending[last] = append(w.pending[last], b[:n]...)
		b = b[n:]
	}
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
	for range w.wake {
		for {
			chunk, finished := w.nextChunk()
			if finished {
				return
			}
			if len(chunk) == 0 {
				break
			}
			err := w.write(chunk)
			w.held.release(len(chunk))
			if err != nil {
				w.fail(err)
				return
			}
			w.recycle(chunk)
		}
	}
}

// nextChunk returns the chunk to write next, none if there is none, and reports whether nothing is written
// any more.
func (w *clientWriter) nextChunk() (chunk []byte, finished bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return nil, true
	case len(w.pending) == 0:
		return nil, w.finished
	}
	chunk, w.pending[0] = w.pending[0], nil
	if w.pending = w.pending[1:]; len(w.pending) == 0 {
		w.pending = nil
	}
	return chunk, false
}

// recycle keeps a chunk that was written for the next operations.
func (w *clientWriter) recycle(chunk []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = chunk[:0]
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

// write writes a chunk to the client, which has to read it in time.
func (w *clientWriter) write(chunk []byte) error {
	if conn, ok := w.client.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		if err := conn.SetWriteDeadline(time.Now().Add(chunkTimeout)); err != nil {
			return err
		}
	}
	_, err := w.client.Write(chunk)
	return err
}
