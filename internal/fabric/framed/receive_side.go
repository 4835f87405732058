package framed

import (
	"io"
	"sync"

	"github.com/outboard-run/outboard"
)

// receiveSide passes the bytes that the peer sends on one stream to Read, to a sink or to a
// receiver. The stream's mu guards its fields, except turn.
type receiveSide struct {
	stream *Stream
	turn   sync.Mutex // held by the goroutine that reads the stream

	buffered chunks
	readBuf  []byte // the slice of a waiting Read; nil: none waits
	filling  bool   // the connection's reader is writing into readBuf
	filled   int
	sink     Sink // commits the bytes that the reader has read, instead of waking a Read
	window   receiveWindow
	eof      bool
	err      error
	receiver Receiver
}

// receive waits for bytes, and returns the credit to send for them.
func (r *receiveSide) receive(p []byte) (n, grant int, err error) {
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.buffered.size == 0 && r.err == nil && !r.eof {
		if r.stream.openPending {
			r.stream.flushOpen()
		}
		r.waitFilled(p)
	}
	switch {
	case r.filled > 0:
		n, r.filled = r.filled, 0
	case r.buffered.size > 0:
		n = r.buffered.read(p)
	case r.err != nil:
		return 0, 0, r.err
	default:
		return 0, 0, io.EOF
	}
	return n, r.creditFor(n), nil
}

// waitFilled offers p to the connection's reader until bytes have arrived. While the reader fills p
// only the reader ends the wait.
func (r *receiveSide) waitFilled(p []byte) {
	for r.buffered.size == 0 && r.filled == 0 && r.err == nil && !r.eof || r.filling {
		r.readBuf = p
		r.stream.changed.Wait()
	}
	r.readBuf = nil
}

// creditFor counts n bytes as read and returns the credit to send now. Locks: stream.mu is held.
func (r *receiveSide) creditFor(n int) (grant int) {
	r.window.consumed += n
	if r.window.consumed < r.window.size/2 || r.eof || r.err != nil {
		return 0
	}
	return r.window.grant()
}

// acceptData spends the credit of n bytes. For a waiting Read it returns the slice to read into,
// and blocks that Read until dataRead.
func (r *receiveSide) acceptData(n int) (into []byte, to Receiver, err error) {
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.eof || n > r.window.credit {
		return nil, nil, violation("%d bytes on stream %d: credit is %d, ended %t", n, r.stream.id, r.window.credit, r.eof)
	}
	r.window.credit -= n
	if r.receiver != nil {
		return nil, r.receiver, nil
	}
	if r.filled == len(r.readBuf) || r.buffered.size > 0 || r.err != nil {
		return nil, nil, nil
	}
	r.filling = true
	return r.readBuf[r.filled:min(r.filled+n, len(r.readBuf))], nil, nil
}

func (r *receiveSide) dataRead(n int) error {
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	r.filling = false
	if r.sink != nil {
		return r.sinkFilled(n)
	}
	r.filled += n
	r.stream.changed.Broadcast()
	return nil
}

// failIfFilling ends the connection if its reader still reads a frame into the memory of a Read, or
// of a sink, of a stream that was ended. The reader of the stream waits for it, and so do all other
// streams.
func (r *receiveSide) failIfFilling() {
	r.stream.mu.Lock()
	filling := r.filling
	r.stream.mu.Unlock()
	if c := r.stream.conn; filling {
		c.fail(outboard.Errorf(outboard.Unreachable, "fabric", "peer sends a frame of a stream that has ended for more than %v", c.o.DeadAfter))
	}
}

// storeChunk buffers c, or returns a receiver that was attached meanwhile.
func (r *receiveSide) storeChunk(c *chunk) Receiver {
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.receiver != nil {
		return r.receiver
	}
	if r.err != nil { // aborted meanwhile
		chunkPool.Put(c)
		return nil
	}
	r.buffered.push(c)
	r.stream.changed.Broadcast()
	return nil
}

// copyStep copies buffered bytes, or lets the connection's reader fill the sink until waitForSink
// returns.
func (r *receiveSide) copyStep(sink Sink, buffer []byte) error {
	r.stream.mu.Lock()
	if r.buffered.size == 0 && r.err == nil && !r.eof {
		if r.stream.openPending {
			r.stream.flushOpen()
		}
		r.waitForSink(sink, buffer)
		buffer = sink.TryReserve()
	}
	n, grant := 0, 0
	if r.buffered.size > 0 && len(buffer) > 0 {
		n = r.buffered.read(buffer)
		grant = r.creditFor(n)
	}
	over := r.readEnd()
	r.stream.mu.Unlock()
	if n > 0 {
		sink.Commit(n)
	}
	if grant > 0 {
		r.stream.conn.out.sendSmall(func(b []byte) []byte { return appendCredit(b, r.stream.id, uint32(grant)) })
	}
	return over
}

// waitForSink waits until the sink is full, data was buffered instead, or the stream has ended.
// Locks: stream.mu is held.
func (r *receiveSide) waitForSink(sink Sink, buffer []byte) {
	r.sink, r.readBuf = sink, buffer[:min(len(buffer), relayPiece)]
	for r.filling || len(r.readBuf) > 0 && r.buffered.size == 0 && r.err == nil && !r.eof {
		r.stream.changed.Wait()
	}
	r.sink, r.readBuf = nil, nil
}

// sinkFilled commits n bytes that the connection's reader has read into the reserved space, and
// reserves more. Locks: stream.mu is held.
func (r *receiveSide) sinkFilled(n int) error {
	r.sink.Commit(n)
	buffer := r.sink.TryReserve()
	r.readBuf = buffer[:min(len(buffer), relayPiece)]
	if len(r.readBuf) == 0 || r.err != nil || r.eof {
		r.stream.changed.Broadcast()
	}
	grant := r.creditFor(n)
	if grant == 0 {
		return nil
	}
	// The reader must not block on writing.
	return r.stream.conn.out.queue.push(func(b []byte) []byte { return appendCredit(b, r.stream.id, uint32(grant)) }, false)
}

// readEnd returns why no more bytes follow, or nil if more may. Locks: stream.mu is held.
func (r *receiveSide) readEnd() error {
	switch {
	case r.buffered.size > 0:
		return nil
	case r.err != nil:
		return r.err
	case r.eof:
		return io.EOF
	}
	return nil
}
