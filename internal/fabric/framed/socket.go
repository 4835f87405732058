package framed

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/outboard-run/outboard/internal/netconn"
)

// socket sits between the frames, or TLS, and the operating system. It merges small system
// calls: crypto/tls alone makes one for each record of 16 KiB, both ways.
type socket struct {
	net.Conn
	vectored bool // long writes leave by writev, without a copy
	raw      syscall.RawConn
	received atomic.Bool
	writes   atomic.Uint64 // begun and ended: odd while one is in progress
	events   Observer

	mu        sync.Mutex
	buffering bool
	writeBuf  []byte

	beforeRead func() // called before a system call that may block

	readBuf   []byte // bytes read ahead
	readSpace []byte
}

const (
	readAhead       = 256 << 10
	writeBufferSize = 128 << 10
	// vectorMin is the size from which a write is not copied.
	vectorMin = 16 << 10
)

// newSocket returns a socket over nc. With tls set TLS writes to it, a record of at most 16 KiB with
// each call, from a buffer of its own: those are copied, or each would be a system call.
func newSocket(nc net.Conn, tls bool, events Observer) *socket {
	p := &socket{Conn: nc, events: events, readSpace: make([]byte, readAhead)}
	if tcp, ok := netconn.Lowest(nc).(*net.TCPConn); ok {
		p.raw, _ = tcp.SyscallConn()
		tune(tcp)
	}
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		p.vectored = !tls
	}
	return p
}

// NetConn returns the connection below: the hooks of a TLS configuration see only the socket.
func (p *socket) NetConn() net.Conn { return p.Conn }

// Read returns bytes that were read ahead, or reads the available bytes.
func (p *socket) Read(b []byte) (n int, err error) {
	if len(p.readBuf) > 0 {
		n = copy(b, p.readBuf)
		p.readBuf = p.readBuf[n:]
		return n, nil
	}
	p.beforeRead()
	if len(b) >= len(p.readSpace)/2 {
		n, err = p.Conn.Read(b)
		p.events.BytesReceived(n)
	} else if n, err = p.Conn.Read(p.readSpace); n > 0 {
		p.events.BytesReceived(n)
		p.readBuf = p.readSpace[:n]
		n = copy(b, p.readBuf)
		p.readBuf = p.readBuf[n:]
		err = nil // an error is returned again by the next call
	}
	if n > 0 && !p.received.Load() {
		p.received.Store(true)
	}
	return n, err
}

// writable reports whether a small write would not block. It returns false if that is unknown.
func (p *socket) writable() bool { return p.raw != nil && writable(p.raw) }

// Write sends b, or copies it while the socket buffers.
func (p *socket) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.buffering && len(p.writeBuf) == 0 {
		return p.send(b)
	}
	if p.vectored && len(b) >= vectorMin && len(b) > cap(p.writeBuf)/2 {
		return len(b), p.writeBoth(b)
	}
	p.writeBuf = append(p.writeBuf, b...)
	if len(p.writeBuf) >= writeBufferSize || !p.buffering {
		return len(b), p.writeBuffered()
	}
	return len(b), nil
}

// writeBoth sends the buffered bytes and b in one system call.
func (p *socket) writeBoth(b []byte) error {
	both := net.Buffers{p.writeBuf, b}
	p.writes.Add(1)
	n, err := both.WriteTo(p.Conn)
	p.writes.Add(1)
	p.events.BytesSent(int(n))
	p.writeBuf = p.writeBuf[:0]
	return err
}

// buffer delays the next writes until flush.
func (p *socket) buffer() {
	p.mu.Lock()
	p.buffering = true
	p.mu.Unlock()
}

func (p *socket) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buffering = false
	return p.writeBuffered()
}

func (p *socket) writeBuffered() error {
	if len(p.writeBuf) == 0 {
		return nil
	}
	_, err := p.send(p.writeBuf)
	p.writeBuf = p.writeBuf[:0]
	return err
}

// send makes one system call, unless it is interrupted.
func (p *socket) send(b []byte) (int, error) {
	p.writes.Add(1)
	n, err := p.Conn.Write(b)
	p.writes.Add(1)
	p.events.BytesSent(n)
	return n, err
}
