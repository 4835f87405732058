package appdevice

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/compute"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/shm"
)

// Types of messages on a node's socket for devices. A connection is a lease: closing it, or its
// direction to the node, returns the device.
const (
	// TypeLease is the first message to the node: a DeviceRequest.
	TypeLease = "lease"
	// TypeWaiting is the node's message why the request waits: a Waiting. The node sends it when
	// the reason changes.
	TypeWaiting = "waiting"
	// TypeGranted is the node's message that the lease is granted: a GrantedDevice. The file is
	// the memory of a session's ring.
	TypeGranted = "granted"
	// TypeEnded is the node's last message: the ipc.Reason why the lease was refused or ended,
	// without any field set when the process returned it.
	TypeEnded = "ended"
)

// LeaseOptions configure both ends of a connection to a node's socket for devices.
var LeaseOptions = ipc.Options{MaxBody: 16 << 10, MaxReceived: 32 << 10}

// DeviceRequest requests a device.
type DeviceRequest struct {
	// Key authenticates the process.
	Key      string `json:"key"`
	App      string `json:"app"`
	Version  int    `json:"version"`
	Function string `json:"function"`
	Device   string `json:"device"`
}

// Waiting describes what a request waits for.
type Waiting struct {
	Text string `json:"text"`
}

// GrantedDevice is a leased device.
type GrantedDevice struct {
	Lease  outboard.LeaseID `json:"lease"`
	Memory outboard.Bytes   `json:"memory"`
	Device outboard.Device  `json:"device"`
}

// lease is a device that the node has leased to this process, with a session on it.
type lease struct {
	granted GrantedDevice
	device  *compute.Device
	conn    *ipc.Conn
	ring    *shm.Ring
	closing atomic.Bool
	ended   chan struct{} // closed when the lease has ended
	err     error         // why the lease ended; set before ended is closed
	done    chan struct{} // closed when the node has closed the connection
}

// open has the node lease a device, and waits for it. It calls waiting with a description of what
// the request waits for.
func (ls *Leases) open(ctx context.Context, r DeviceRequest, shared bool, waiting func(string)) (*lease, error) {
	if ls.opts.Socket == "" {
		return nil, outboard.Errorf(outboard.NoDevice, "", "this process has no node that leases devices")
	}
	r.Key = ls.opts.Key
	conn, err := ipc.Dial(ctx, ls.opts.Socket, LeaseOptions)
	if err != nil {
		return nil, outboard.Errorf(outboard.Unreachable, "lease a device", "%w", err)
	}
	l, err := requestLease(ctx, conn, r, waiting)
	if err == nil {
		err = l.open(ctx, shared)
	}
	if err != nil {
		if l != nil {
			l.close()
		}
		_ = conn.Close()
		return nil, err
	}
	return l, nil
}

// requestLease waits until the lease is granted.
func requestLease(ctx context.Context, conn *ipc.Conn, r DeviceRequest, waiting func(string)) (*lease, error) {
	if err := conn.Send(TypeLease, r); err != nil {
		return nil, nodeLost(err)
	}
	for {
		m, err := conn.Receive(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			return nil, nodeLost(err)
		}
		l, err := newLease(conn, m, waiting)
		m.Close()
		if l != nil || err != nil {
			return l, err
		}
	}
}

// newLease returns the lease that a message grants, or nil if the message only reports what the
// request waits for.
func newLease(conn *ipc.Conn, m *ipc.Message, waiting func(string)) (*lease, error) {
	switch m.Type {
	case TypeWaiting:
		var w Waiting
		err := m.Decode(&w)
		waiting(w.Text)
		return nil, err
	case TypeEnded:
		if err := endOf(m); err != nil {
			return nil, err
		}
		return nil, outboard.Errorf(outboard.Protocol, "lease a device", "the node ended the lease before it granted it")
	}
	l := &lease{conn: conn, ended: make(chan struct{}), done: make(chan struct{})}
	err := errors.Join(m.Lost(), m.Decode(&l.granted))
	file := m.File()
	if err == nil && (m.Type != TypeGranted || file == nil) {
		err = outboard.Errorf(outboard.Protocol, "lease a device", "the node sent no ring but a message of type %.40q", m.Type)
	}
	if err == nil {
		l.ring, err = shm.Open(file, shm.Client)
	}
	if err != nil {
		closeFile(file)
		return nil, err
	}
	go l.awaitEnd()
	return l, nil
}

// endOf returns the reason in a message that a lease ended.
func endOf(m *ipc.Message) error {
	var why ipc.Reason
	if err := m.Decode(&why); err != nil {
		return err
	}
	return why.Err()
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}

func nodeLost(err error) error {
	return outboard.Errorf(outboard.SessionLost, "lease a device", "the node ended: %w", err)
}

func (l *lease) open(ctx context.Context, shared bool) (err error) {
	l.device, err = compute.Open(ctx, compute.Options{Ring: l.ring, Shared: shared, ExplainError: l.reason})
	return err
}

// awaitEnd waits for the end of the lease.
func (l *lease) awaitEnd() {
	defer close(l.done)
	m, err := l.conn.Receive(context.Background())
	switch {
	case l.closing.Load():
	case err != nil:
		l.err = nodeLost(err)
	case m.Type == TypeEnded:
		l.err = endOf(m)
	}
	_ = l.ring.Fail(l.err) // the node has closed the ring as well, unless it crashed
	close(l.ended)
	for err == nil { // until the node has closed the connection
		m.Close()
		m, err = l.conn.Receive(context.Background())
	}
}

// reasonTimeout is how long the node may take to report why a session ended.
const reasonTimeout = time.Second

// reason returns the node's reason for the end of the session in place of a ring's error.
func (l *lease) reason(err error) error {
	if l.closing.Load() {
		return err
	}
	timer := time.NewTimer(reasonTimeout)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
		return err
	}
	if l.err != nil {
		return l.err
	}
	return err
}

// returnTimeout is how long the node may take to confirm that a lease was returned.
const returnTimeout = 5 * time.Second

// close returns the lease, and waits until the node has confirmed it.
func (l *lease) close() {
	l.closing.Store(true)
	if l.device != nil {
		_ = l.device.Close() // its objects are released with the session
	} else {
		_ = l.ring.Close(shm.Done)
	}
	_ = l.conn.CloseWrite()
	timer := time.AfterFunc(returnTimeout, func() { _ = l.conn.Close() })
	<-l.done
	timer.Stop()
	_ = l.conn.Close()
	l.ring.Unmap()
}
