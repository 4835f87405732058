package tenant

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

// A DeviceRequest is the first that a process says on its node's socket for devices: who
// wants what the manifest says. The connection is the lease: the node gives it back when
// the process hangs up.
type DeviceRequest struct {
	// Key is the process's own, of its Config.
	Key      string `json:"key"`
	App      string `json:"app"`
	Version  int    `json:"version"`
	Function string `json:"function"`
	Device   string `json:"device"`
}

// A DeviceEvent is what the node says then. One field is set.
type DeviceEvent struct {
	// Waiting tells what the request waits for, whenever that changes.
	Waiting string `json:"waiting,omitempty"`
	// Granted says that the lease is there. The ring of a session comes along.
	Granted *GrantedDevice `json:"granted,omitempty"`
	// Ended says that there is no lease any more, or none at all.
	Ended *DeviceEnd `json:"ended,omitempty"`
}

// A GrantedDevice is a device on lease.
type GrantedDevice struct {
	Lease  outboard.LeaseID `json:"lease"`
	Memory outboard.Bytes   `json:"memory"`
	Device outboard.Device  `json:"device"`
}

// A DeviceEnd is why a lease ended; nothing is set when that was asked for.
type DeviceEnd struct {
	Kind  outboard.Kind `json:"kind,omitempty"`
	Error string        `json:"error,omitempty"`
}

// EndOf tells of an error.
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

// largestSaid bounds what node and process say to each other about a device.
const largestSaid = 64 << 10

// Say sends what a process or its node says about a device: its size as an u32, and JSON.
// A file goes along if it is not nil.
func Say(conn *net.UnixConn, what any, file *os.File) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return unixsock.Send(conn, append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...), file)
}

// Hear waits for what Say sends. The file that comes along is the caller's, even with an
// error.
func Hear(conn *net.UnixConn, into any) (*os.File, error) {
	head := make([]byte, 4)
	file, err := unixsock.Receive(conn, head)
	if err != nil {
		return file, err
	}
	size := binary.LittleEndian.Uint32(head)
	if size > largestSaid {
		return file, fmt.Errorf("%d bytes are too much to hear", size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(conn, text); err != nil {
		return file, err
	}
	return file, json.Unmarshal(text, into)
}

// A lease is a device that the node has leased for this process, with a session on it.
type lease struct {
	about   GrantedDevice
	device  *compute.Device
	conn    *net.UnixConn
	ring    *shm.Ring
	closing atomic.Bool
	ended   chan struct{} // closed when the node has said that the lease ended
	err     error         // why; set before ended is closed
	done    chan struct{} // closed when the node has hung up
}

// lease has the node lease a device, and waits for it. It calls waiting with what it waits
// for.
func (t *Tenant) lease(ctx context.Context, r DeviceRequest, shared bool, waiting func(string)) (*lease, error) {
	if t.config.DevicesSocket == "" {
		return nil, outboard.Errorf(outboard.NoDevice, "", "this process has no node that leases devices")
	}
	r.Key = t.config.DevicesKey
	conn, err := unixsock.Dial(ctx, t.config.DevicesSocket)
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
	if err := Say(conn, r, nil); err != nil {
		return nil, nodeEnded(err)
	}
	for {
		var event DeviceEvent
		file, err := Hear(conn, &event)
		switch {
		case err != nil:
			closeFile(file)
			return nil, nodeEnded(err)
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
		l := &lease{about: *event.Granted, conn: conn, ring: ring, ended: make(chan struct{}), done: make(chan struct{})}
		go l.follow()
		return l, nil
	}
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}

func nodeEnded(err error) error {
	return outboard.Errorf(outboard.SessionLost, "lease a device", "the node ended: %w", err)
}

func (l *lease) open(ctx context.Context, shared bool) (err error) {
	l.device, err = compute.Open(ctx, compute.Options{Ring: l.ring, Shared: shared, Why: l.why})
	return err
}

// follow waits for the end of the lease.
func (l *lease) follow() {
	defer close(l.done)
	var event DeviceEvent
	file, err := Hear(l.conn, &event)
	closeFile(file)
	switch {
	case l.closing.Load():
	case err != nil:
		l.err = nodeEnded(err)
	case event.Ended != nil:
		l.err = event.Ended.err()
	}
	_ = l.ring.Fail(l.err) // the node has closed it as well, unless it died
	close(l.ended)
	_, _ = io.Copy(io.Discard, l.conn)
}

// whyLimit is how long the node may take to say why a session ended.
const whyLimit = time.Second

// why makes of a ring's error what the node says.
func (l *lease) why(err error) error {
	if l.closing.Load() {
		return err
	}
	timer := time.NewTimer(whyLimit)
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

// backLimit is how long the node may take to give a lease back.
const backLimit = 5 * time.Second

// close gives the lease back, and waits until it is.
func (l *lease) close() {
	l.closing.Store(true)
	if l.device != nil {
		_ = l.device.Close() // what it held is gone with the session
	} else {
		_ = l.ring.Close(shm.Done)
	}
	_ = l.conn.CloseWrite()
	timer := time.AfterFunc(backLimit, func() { _ = l.conn.Close() })
	<-l.done
	timer.Stop()
	_ = l.conn.Close()
	l.ring.Unmap()
}
