package framed

import (
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// recordTap counts the TLS records of data that are written through it.
type recordTap struct {
	net.Conn
	rest    []byte
	records atomic.Int32
}

func (r *recordTap) Write(p []byte) (int, error) {
	const head, data = 5, 23 // of a record's head, the type first and the length last
	for b := slices.Concat(r.rest, p); ; {
		r.rest = b
		if len(b) < head || len(b) < head+int(binary.BigEndian.Uint16(b[3:])) {
			return r.Conn.Write(p)
		}
		if b[0] == data {
			r.records.Add(1)
		}
		b = b[head+int(binary.BigEndian.Uint16(b[3:])):]
	}
}

// systemCalls counts the writes to a socket.
type systemCalls struct {
	noObserver
	writes atomic.Int32
}

func (s *systemCalls) BytesSent(int) { s.writes.Add(1) }

// discarding is a receiver that discards streams, and reports their ends.
type discarding struct{ ended chan struct{} }

func (*discarding) Buffer(int) []byte { return nil }
func (*discarding) Filled(int) int    { return 0 }
func (d *discarding) Ended() bool     { d.ended <- struct{}{}; return false }
func (*discarding) Work()             {}
func (*discarding) Failed(error)      {}

// discardingPair returns a client over TLS whose peer discards the streams of the method "discard".
func discardingPair(t *testing.T, near, far net.Conn, o Options) (*Conn, *discarding) {
	t.Helper()
	clientTLS, serverTLS := certificates(t)
	o.TLS, o.DeadAfter = clientTLS, time.Hour
	client, server := closeAtEnd(t, Client(near, o), Server(far, Options{TLS: serverTLS, DeadAfter: time.Hour}))
	d := &discarding{make(chan struct{}, 1)}
	server.Handle("discard", func(*Stream, []byte) (Receiver, error) { return d, nil })
	if err := client.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client, d
}

// sendDiscarded sends a piece on a stream of its own, and waits until the peer has seen its end.
func sendDiscarded(t *testing.T, c *Conn, d *discarding, p Piece) {
	t.Helper()
	if err := open(t, c, "discard").Send(p); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.ended:
	case <-c.Done():
		t.Fatal(c.Err())
	}
}

// longPiece is a message with its header and its status, as a unary call sends it.
func longPiece(size int) Piece {
	return Piece{Prefix: make([]byte, 5), Data: make([]byte, size), Suffix: make([]byte, 19), End: true}
}

// The header of a long frame, the short frames behind it and its end have no TLS records of their
// own: each record costs both ends its encryption's fixed part.
func TestLongPieceFillsRecords(t *testing.T) {
	near, far := tcp(t)
	tap := &recordTap{Conn: near}
	client, d := discardingPair(t, tap, far, Options{})
	for _, size := range []int{9 << 10, 16 << 10, 100 << 10, 120 << 10, 200 << 10} {
		const pieces, pings = 20, 20
		before := tap.records.Load()
		for range pieces {
			sendDiscarded(t, client, d, longPiece(size))
		}
		// A message beyond the size of a frame may end a record at the end of the frame.
		perPiece := (size+maxRecord)/maxRecord + (size-1)/maxSent
		if got := int(tap.records.Load() - before); got > pieces*perPiece+pings {
			t.Errorf("%d pieces of %d bytes in %d records, want %d for each", pieces, size, got, perPiece)
		}
	}
}

// A frame leaves in few system calls, although crypto/tls writes each record by itself.
func TestRecordsLeaveTogether(t *testing.T) {
	near, far := tcp(t)
	calls := new(systemCalls)
	client, d := discardingPair(t, near, far, Options{Observer: calls})
	const pieces, size, pings = 20, 100 << 10, 20
	before := calls.writes.Load()
	for range pieces {
		sendDiscarded(t, client, d, longPiece(size))
	}
	if got := calls.writes.Load() - before; got > 2*pieces+pings {
		t.Errorf("%d frames of %d bytes in %d system calls", pieces, size, got)
	}
}
