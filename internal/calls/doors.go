package calls

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// doors are where programs connect.
type doors struct {
	programs *shared.Listener // nil: closed
	plain    *door            // nil: none
}

// Accept serves the programs that connect to two listening sockets: for shared
// memory, and for plain gRPC where that is not nil. Both files stay the caller's.
func (p *Plane) Accept(programs, plain *os.File) error {
	l, err := shared.ListenFile(programs, p.forPrograms())
	if err != nil {
		return err
	}
	if plain == nil {
		p.open(l, nil)
		return nil
	}
	port, err := net.FileListener(plain)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for plain gRPC: %w", err), l.Close())
	}
	p.open(l, port)
	return nil
}

func (p *Plane) open(programs *shared.Listener, port net.Listener) {
	d := doors{programs: programs}
	p.running.Go(func() { p.servePrograms(p.life, programs) })
	if port != nil {
		d.plain = newDoor(port)
		p.running.Go(func() { p.servePlain(d.plain) })
	}
	p.mu.Lock()
	p.doors = d
	p.mu.Unlock()
}

// Pause takes no more connections of programs, and keeps those that there are.
// Accept goes on.
func (p *Plane) Pause() error {
	p.mu.Lock()
	d := p.doors
	p.doors = doors{}
	p.mu.Unlock()
	var err error
	if d.programs != nil {
		err = d.programs.Retire()
	}
	if d.plain != nil {
		err = errors.Join(err, d.plain.shut())
	}
	return err
}

// PlainAddr is where plain gRPC is served, "" for nowhere.
func (p *Plane) PlainAddr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doors.plain == nil {
		return ""
	}
	return p.doors.plain.Addr().String()
}

// servePlain serves programs that speak plain gRPC.
func (p *Plane) servePlain(l net.Listener) {
	if err := p.plain.Serve(l); err != nil {
		p.log.Error("plain gRPC is not served any more", "error", err)
	}
}

// A door is a listener that can be shut without a loss: grpc-go hangs up on whom it
// has accepted and not looked at when it is told to stop, so that must wait until
// it has looked at everybody.
type door struct {
	net.Listener
	closed  chan struct{}
	once    sync.Once
	waiting sync.WaitGroup // connections that were accepted and not looked at

	mu   sync.Mutex
	over bool
}

func newDoor(l net.Listener) *door { return &door{Listener: l, closed: make(chan struct{})} }

// Accept implements net.Listener. Once the door is shut it waits until it is closed.
func (d *door) Accept() (net.Conn, error) {
	nc, err := d.Listener.Accept()
	if err == nil {
		d.waiting.Add(1)
		return &visitor{Conn: nc, seen: sync.OnceFunc(d.waiting.Done)}, nil
	}
	d.mu.Lock()
	over := d.over
	d.mu.Unlock()
	if !over {
		return nil, err
	}
	<-d.closed
	return nil, net.ErrClosed
}

// shut accepts nobody any more, and waits until everybody was looked at.
func (d *door) shut() error {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	err := d.Listener.Close()
	d.waiting.Wait()
	return err
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	if err := d.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// visitor is a connection that grpc-go has looked at once it has set a deadline.
type visitor struct {
	net.Conn
	seen func()
}

// SetDeadline implements net.Conn.
func (v *visitor) SetDeadline(t time.Time) error {
	v.seen()
	return v.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.seen()
	return v.Conn.Close()
}
