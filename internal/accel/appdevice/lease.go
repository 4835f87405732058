package appdevice

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/compute"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// DeviceRequest is the first message that a tenant's process sends on its node's socket for
// devices. The connection is the lease: closing it returns the device.
type DeviceRequest struct {
	// Key authenticates the process.
	Key      string `json:"key"`
	App      string `json:"app"`
	Version  int    `json:"version"`
	Function string `json:"function"`
	Device   string `json:"device"`
}

// DeviceEvent is a message of the node. One field is set.
type DeviceEvent struct {
	// Waiting says what the request waits for; it is sent when that changes.
	Waiting string `json:"waiting,omitempty"`
	// Granted says that the lease is granted. The ring of a session accompanies it.
	Granted *GrantedDevice `json:"granted,omitempty"`
	// Ended says that the lease ended, or was refused.
	Ended *DeviceEnd `json:"ended,omitempty"`
}

// GrantedDevice is a device on lease.
type GrantedDevice struct {
	Lease  outboard.LeaseID `json:"lease"`
	Memory outboard.Bytes   `json:"memory"`
	Device outboard.Device  `json:"device"`
}

// DeviceEnd is why a lease ended; no field is set when the process returned it.
type DeviceEnd struct {
	Kind  outboard.Kind `json:"kind,omitempty"`
	Error string        `json:"error,omitempty"`
}

// EndOf is the event for an error, nil for a lease that was returned.
func EndOf(err error) DeviceEvent {
	e := &DeviceEnd{}
	if err != nil {
		e.Kind, e.Error = outboard.KindOf(err), err.Error()
	}
	return DeviceEvent{Ended: e}
}

func (e *DeviceEnd) err() error {
	if e.Error == "" {
		return nil
	}
	return outboard.Errorf(e.Kind, "", "%s", e.Error)
}

// maxMessage bounds a message between node and process about a device.
const maxMessage = 64 << 10

// Send sends a message about a device: its size as a little-endian u32, and JSON. It passes
// the descriptor of file if that is not nil.
func Send(conn *net.UnixConn, message any, file *os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return unixsock.Send(conn, append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...), file)
}

// Receive waits for a message of Send. The file that was passed with it is the caller's to
// close, even with an error.
func Receive(conn *net.UnixConn, into any) (*os.File, error) {
	head := make([]byte, 4)
	file, err := unixsock.Receive(conn, head)
	if err != nil {
		return file, err
	}
	size := binary.LittleEndian.Uint32(head)
	if size > maxMessage {
		return file, fmt.Errorf("a message of %d bytes is too large", size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(conn, text); err != nil {
		return file, err
	}
	return file, json.Unmarshal(text, into)
}

// lease is a device that the node has leased to this process, with a session on it.
type lease struct {
	granted GrantedDevice
	device  *compute.Device
	conn    *net.UnixConn
	ring    *shm.Ring
	closing atomic.Bool
	ended   chan struct{} // closed when the lease ended
	err     error         // why; set before ended is closed
	done    chan struct{} // closed when the node has closed the connection
}

// open has the node lease a device, and waits for it. It calls waiting with what the request
// waits for.
func (ls *Leases) open(ctx context.Context, r DeviceRequest, shared bool, waiting func(string)) (*lease, error) {
	if ls.opts.Socket == "" {
		return nil, outboard.Errorf(outboard.NoDevice, "", "this process has no node that leases devices")
	}
	r.Key = ls.opts.Key
	conn, err := unixsock.Dial(ctx, ls.opts.Socket)
	if err != nil {
		return nil, outboard.Errorf(outboard.Unreachable, "lease a device", "%w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	l, err := begin(conn, r, waiting)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
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

// begin waits until the lease is granted.
func begin(conn *net.UnixConn, r DeviceRequest, waiting func(string)) (*lease, error) {
	if err := Send(conn, r, nil); err != nil {
		return nil, nodeLost(err)
	}
	for {
		var event DeviceEvent
		file, err := Receive(conn, &event)
		switch {
		case err != nil:
			closeFile(file)
			return nil, nodeLost(err)
		case event.Ended != nil:
			closeFile(file)
			return nil, event.Ended.err()
		case event.Granted == nil:
			closeFile(file)
			waiting(event.Waiting)
			continue
		case file == nil:
			return nil, outboard.Errorf(outboard.Protocol, "lease a device", "the node sent no ring")
		}
		ring, err := shm.Open(file, shm.Client)
		if err != nil {
			closeFile(file)
			return nil, err
		}
		l := &lease{granted: *event.Granted, conn: conn, ring: ring, ended: make(chan struct{}), done: make(chan struct{})}
		go l.awaitEnd()
		return l, nil
	}
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
	l.device, err = compute.Open(ctx, compute.Options{Ring: l.ring, Shared: shared, Why: l.reason})
	return err
}

// awaitEnd waits for the end of the lease.
func (l *lease) awaitEnd() {
	defer close(l.done)
	var event DeviceEvent
	file, err := Receive(l.conn, &event)
	closeFile(file)
	switch {
	case l.closing.Load():
	case err != nil:
		l.err = nodeLost(err)
	case event.Ended != nil:
		l.err = event.Ended.err()
	}
	_ = l.ring.Fail(l.err) // the node has closed it as well, unless it crashed
	close(l.ended)
	_, _ = io.Copy(io.Discard, l.conn)
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
		_ = l.device.Close() // what it held is gone with the session
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
