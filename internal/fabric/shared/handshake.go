package shared

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A hello is the first message of each side, 32 bytes:
//
//	0   "OBCALL", u16 version
//	8   u32 flags
//	12  u32 slots of a ring; u64 bytes of a heap, u64 0: sent by the listener only
type hello struct {
	serves bool
	// notifies reports that the side wakes a parked reader through the socket.
	notifies bool
	geometry
}

const (
	helloSize    = 32
	helloVersion = 1
	flagServes   = 1
	flagNotifies = 2
)

func (h hello) encode() []byte {
	b := append(make([]byte, 0, helloSize), "OBCALL"...)
	b = binary.LittleEndian.AppendUint16(b, helloVersion)
	var flags uint32
	if h.serves {
		flags |= flagServes
	}
	if h.notifies {
		flags |= flagNotifies
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.slots))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.heap))
	return binary.LittleEndian.AppendUint64(b, 0)
}

func decodeHello(b []byte) (hello, error) {
	if len(b) != helloSize || string(b[:6]) != "OBCALL" {
		return hello{}, outboard.Errorf(outboard.Protocol, "handshake", "the peer does not speak this protocol")
	}
	if v := binary.LittleEndian.Uint16(b[6:]); v != helloVersion {
		return hello{}, outboard.Errorf(outboard.Protocol, "handshake", "version %d: this program knows %d", v, helloVersion)
	}
	flags := binary.LittleEndian.Uint32(b[8:])
	h := hello{serves: flags&flagServes != 0, notifies: flags&flagNotifies != 0}
	h.slots = int(binary.LittleEndian.Uint32(b[12:]))
	h.heap = int(min(binary.LittleEndian.Uint64(b[16:]), maxHeap+1))
	return h, nil
}

// acceptHandshake is the listener's side of the handshake.
func acceptHandshake(socket *net.UnixConn, o *Options) (*Conn, error) {
	_ = socket.SetDeadline(time.Now().Add(o.Handshake))
	theirs, f, err := receiveHello(socket)
	if f != nil {
		_ = f.Close()
	}
	if err != nil {
		return nil, err
	}
	ours := hello{serves: o.Handler != nil, notifies: true, geometry: geometry{heap: o.Heap, slots: o.Slots}}
	if f, err = newRegion(ours.geometry); err != nil {
		return nil, err
	}
	if err := unixsock.Send(socket, ours.encode(), f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	theirs.geometry = ours.geometry
	return newConnOn(socket, f, acceptor, theirs, o)
}

// dialHandshake is the dialler's side of the handshake.
func dialHandshake(socket *net.UnixConn, o *Options) (*Conn, error) {
	if err := unixsock.Send(socket, hello{serves: o.Handler != nil, notifies: true}.encode(), nil); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	theirs, f, err := receiveHello(socket)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, outboard.Errorf(outboard.Protocol, "handshake", "the listener sent no region")
	}
	if err := theirs.check(); err != nil {
		_ = f.Close()
		return nil, outboard.Errorf(outboard.Protocol, "handshake", "the listener's region: %w", err)
	}
	return newConnOn(socket, f, dialler, theirs, o)
}

func receiveHello(socket *net.UnixConn) (hello, *os.File, error) {
	b := make([]byte, helloSize)
	f, err := unixsock.Receive(socket, b)
	if err != nil {
		return hello{}, nil, fmt.Errorf("handshake: %w", err)
	}
	h, err := decodeHello(b)
	if err != nil && f != nil {
		_ = f.Close()
		f = nil
	}
	return h, f, err
}

// newConnOn maps f, which it takes over, and returns the Conn.
func newConnOn(socket *net.UnixConn, f *os.File, s side, theirs hello, o *Options) (*Conn, error) {
	peer, err := peerCredentials(socket)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	r, err := openRegion(f, theirs.geometry)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	_ = socket.SetDeadline(time.Time{})
	return newConn(socket, r, s, theirs, peer, o), nil
}

func peerCredentials(socket *net.UnixConn) (Peer, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	if failed != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", failed)
	}
	return Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}, nil
}
