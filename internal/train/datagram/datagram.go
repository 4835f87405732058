// Package datagram exchanges sealed datagrams of UDP between two nodes. Some may be lost.
//
// Each node creates a key for the datagrams that it receives, and sends it with its port over a
// stream that is authenticated and encrypted, a stream of the fabric. A datagram has its number (8
// bytes, little-endian), which is the nonce of AES-256-GCM, and the sealed payload. An attacker on
// the network can lose and repeat datagrams, and delay them; the user of a Path has to ignore those
// that it has received already.
package datagram

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	numberSize = 8
	tagSize    = 16
	keySize    = 32
	offerSize  = 2 + keySize
	// MaxPayload is the size of a payload in bytes that every link carries in one packet: an IPv6
	// packet has at least 1,280 bytes (RFC 8200, section 5), of which 48 are headers.
	MaxPayload = 1280 - 48 - numberSize - tagSize
	// Overhead is the size of what a packet has beside the payload, with the header of Ethernet.
	Overhead = 48 + 14 + numberSize + tagSize
	// receiveBuffer is the memory of the kernel for datagrams that have arrived.
	receiveBuffer = 4 << 20
)

// A Path exchanges datagrams with one other node. One goroutine may send and one may receive at the
// same time.
type Path struct {
	socket *net.UDPConn
	to     netip.AddrPort
	sealer cipher.AEAD
	opener cipher.AEAD

	sending sync.Mutex
	number  uint64
	packet  []byte
	arrived []byte
}

// Open opens a path between the addresses of two nodes. Both call it, with the two ends of a stream
// on which nothing else is sent until Open returns. The end of ctx does not end it: close the
// stream.
func Open(ctx context.Context, stream io.ReadWriter, local, remote netip.Addr) (*Path, error) {
	socket, err := new(net.ListenConfig).ListenPacket(ctx, "udp", netip.AddrPortFrom(local, 0).String())
	if err != nil {
		return nil, fmt.Errorf("open a path of datagrams: %w", err)
	}
	udp := socket.(*net.UDPConn) //nolint:errcheck // a socket of UDP
	enlargeBuffer(udp)
	p := &Path{socket: udp, packet: make([]byte, 0, MaxPayload+numberSize+tagSize), arrived: make([]byte, 2<<10)}
	if err := p.exchangeKeys(stream, remote); err != nil {
		_ = udp.Close() // Nothing was sent.
		return nil, fmt.Errorf("open a path of datagrams: %w", err)
	}
	return p, nil
}

// enlargeBuffer asks the kernel for memory for datagrams that have arrived, beyond its usual limit if
// this process may. With less memory more are lost when the node's processors are busy.
func enlargeBuffer(socket *net.UDPConn) {
	_ = socket.SetReadBuffer(receiveBuffer) // It is an optimisation.
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) // Only with CAP_NET_ADMIN.
		})
	}
}

// exchangeKeys sends the other node this node's port and key, and receives those of the other.
func (p *Path) exchangeKeys(stream io.ReadWriter, remote netip.Addr) (err error) {
	own := make([]byte, offerSize)
	port := p.socket.LocalAddr().(*net.UDPAddr).Port //nolint:errcheck // a socket of UDP
	binary.LittleEndian.PutUint16(own, uint16(port))
	_, _ = rand.Read(own[2:]) // It never fails.
	if p.opener, err = newAEAD(own[2:]); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := stream.Write(own)
		sent <- err
	}()
	theirs := make([]byte, offerSize)
	_, err = io.ReadFull(stream, theirs)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	p.to = netip.AddrPortFrom(remote, binary.LittleEndian.Uint16(theirs))
	p.sealer, err = newAEAD(theirs[2:])
	return err
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonce returns the nonce of a datagram, given its number as it is sent.
func nonce(number []byte) []byte {
	var n [12]byte
	copy(n[4:], number)
	return n[:]
}

// Send sends a payload of at most MaxPayload bytes. A datagram that the kernel does not accept is
// lost, as one that the network loses.
func (p *Path) Send(payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("a datagram of %d bytes: want %d at most", len(payload), MaxPayload)
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	p.number++
	number := binary.LittleEndian.AppendUint64(p.packet[:0], p.number)
	_, err := p.socket.WriteToUDPAddrPort(p.sealer.Seal(number, nonce(number), payload, nil), p.to)
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Receive waits for a datagram of the other node and copies its payload to buf, which has at least
// MaxPayload bytes. It returns net.ErrClosed after Close. All other packets are ignored.
func (p *Path) Receive(buf []byte) (int, error) {
	for {
		n, _, err := p.socket.ReadFromUDPAddrPort(p.arrived)
		if errors.Is(err, net.ErrClosed) {
			return 0, err
		}
		if err != nil {
			continue // An error of one packet.
		}
		if payload, err := p.open(p.arrived[:n], buf); err == nil {
			return len(payload), nil
		}
	}
}

var errForeign = errors.New("a packet of another sender")

// open opens a packet into buf.
func (p *Path) open(packet, buf []byte) ([]byte, error) {
	if len(packet) < numberSize+tagSize || len(packet) > MaxPayload+numberSize+tagSize || len(buf) < MaxPayload {
		return nil, errForeign
	}
	return p.opener.Open(buf[:0], nonce(packet[:numberSize]), packet[numberSize:], nil)
}

// Close ends the path: Receive returns.
func (p *Path) Close() error { return p.socket.Close() }
