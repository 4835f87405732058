package framed

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// pipe sits between the frames, or TLS, and the operating system. It makes few
// large system calls out of many small ones: crypto/tls alone makes one for each
// record of 16 KiB, both ways.
type pipe struct {
	net.Conn
	vectors bool // the connection can write several slices in one call
	raw     syscall.RawConn
	heard   atomic.Bool
	events  Observer

	mu   sync.Mutex
	held bool
	out  []byte

	beforeRead func() // called before a system call that may wait

	in     []byte // what was read ahead
	inRoom []byte
}

const (
	readAhead = 256 << 10
	writeHold = 256 << 10
	// direct is the size from which a plain write is not worth copying.
	direct = 16 << 10
)

func newPipe(nc net.Conn, events Observer) *pipe {
	vectors := false
	var raw syscall.RawConn
	switch nc := nc.(type) {
	case *net.TCPConn:
		vectors = true
		raw, _ = nc.SyscallConn()
		_ = nc.SetNoDelay(true)
		keepUnsentLow(nc)
	case *net.UnixConn:
		vectors = true
	}
	return &pipe{Conn: nc, vectors: vectors, raw: raw, events: events, inRoom: make([]byte, readAhead)}
}

// Read gives what was read ahead, or reads as much as there is.
func (p *pipe) Read(b []byte) (n int, err error) {
	if len(p.in) > 0 {
		n = copy(b, p.in)
		p.in = p.in[n:]
		return n, nil
	}
	p.beforeRead()
	if len(b) >= len(p.inRoom)/2 {
		n, err = p.Conn.Read(b)
		p.events.BytesReceived(n)
	} else if n, err = p.Conn.Read(p.inRoom); n > 0 {
		p.events.BytesReceived(n)
		p.in = p.inRoom[:n]
		n = copy(b, p.in)
		p.in = p.in[n:]
		err = nil // an error comes again
	}
	if n > 0 && !p.heard.Load() {
		p.heard.Store(true)
	}
	return n, err
}

// writable says that a small write would not wait. It does not know of all connections.
func (p *pipe) writable() bool { return p.raw != nil && writable(p.raw) }

// Write sends b, or keeps a copy while the pipe is held.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held && len(p.out) == 0 {
		n, err := p.Conn.Write(b)
		p.events.BytesSent(n)
		return n, err
	}
	if p.vectors && len(b) >= direct && len(b) > cap(p.out)/2 {
		return len(b), p.writeBoth(b)
	}
	p.out = append(p.out, b...)
	if len(p.out) >= writeHold || !p.held {
		return len(b), p.send()
	}
	return len(b), nil
}

// writeBoth sends what is held and b in one system call.
func (p *pipe) writeBoth(b []byte) error {
	both := net.Buffers{p.out, b}
	n, err := both.WriteTo(p.Conn)
	p.events.BytesSent(int(n))
	p.out = p.out[:0]
	return err
}

// hold makes the next writes wait for release.
func (p *pipe) hold() {
	p.mu.Lock()
	p.held = true
	p.mu.Unlock()
}

func (p *pipe) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	return p.send()
}

func (p *pipe) send() error {
	if len(p.out) == 0 {
		return nil
	}
	n, err := p.Conn.Write(p.out)
	p.events.BytesSent(n)
	p.out = p.out[:0]
	return err
}
