package session

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/outboard-run/outboard"
)

// HeaderSize is the size of a header on the wire.
const HeaderSize = 32

// MaxSize bounds the size of header and body together.
const MaxSize = 64 << 20

// MaxBulk bounds the bulk of one message.
const MaxBulk = 1 << 42

// Notices is the first op that is not a function of the API but a notice of the protocol.
const Notices = 0x8000

// Flags of a message.
const (
	// WantReply marks a message whose sender waits for a message with the same Call.
	WantReply uint16 = 1
	// IsReply marks the message that answers it.
	IsReply uint16 = 2
	// Alone allows the receiver to block: the client has no other thread that could send
	// meanwhile.
	Alone uint16 = 4
	// More marks a message whose bulk continues in another one of the same call or, in a notice, of
	// the same serial. The status of the last one counts.
	More uint16 = 8

	knownFlags = WantReply | IsReply | Alone | More
)

// Header is the header of a message.
type Header struct {
	// Size is the size of header and body. A Writer sets it.
	Size  uint32
	Op    uint16
	Flags uint16
	// Call is the number that relates a reply to its request. 0: no reply is wanted.
	Call uint32
	// Status is a reply's result code.
	Status int32
	// Bulk counts the bytes after the body, without padding.
	Bulk uint64
	// Serial numbers the messages of a direction from 1. A Writer sets it.
	Serial uint64
}

func (h *Header) put(b []byte) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint32(b, h.Size)
	binary.LittleEndian.PutUint16(b[4:], h.Op)
	binary.LittleEndian.PutUint16(b[6:], h.Flags)
	binary.LittleEndian.PutUint32(b[8:], h.Call)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.Status))
	binary.LittleEndian.PutUint64(b[16:], h.Bulk)
	binary.LittleEndian.PutUint64(b[24:], h.Serial)
}

// get copies the header out of b before decoding it: the peer may change b at any time.
func (h *Header) get(b []byte) {
	raw := [HeaderSize]byte(b)
	h.Size = binary.LittleEndian.Uint32(raw[:])
	h.Op = binary.LittleEndian.Uint16(raw[4:])
	h.Flags = binary.LittleEndian.Uint16(raw[6:])
	h.Call = binary.LittleEndian.Uint32(raw[8:])
	h.Status = int32(binary.LittleEndian.Uint32(raw[12:]))
	h.Bulk = binary.LittleEndian.Uint64(raw[16:])
	h.Serial = binary.LittleEndian.Uint64(raw[24:])
}

func (h *Header) validate(serial uint64) error {
	switch {
	case h.Size < HeaderSize || h.Size%8 != 0 || h.Size > MaxSize:
		return protocolError("message %d: size %d is not a multiple of 8 between %d and %d", serial, h.Size, HeaderSize, MaxSize)
	case h.Serial != serial:
		return protocolError("message %d: serial is %d", serial, h.Serial)
	case h.Bulk > MaxBulk:
		return protocolError("message %d: %d bulk bytes, more than %d", serial, h.Bulk, uint64(MaxBulk))
	case h.Flags&^knownFlags != 0:
		return protocolError("message %d: unknown flags %#x", serial, h.Flags)
	case h.Flags&WantReply != 0 && h.Call == 0:
		return protocolError("message %d: wants a reply but has no call number", serial)
	}
	return nil
}

func protocolError(format string, args ...any) error {
	return &outboard.Error{Op: "session", Kind: outboard.Protocol, Err: fmt.Errorf(format, args...)}
}

// padding returns the number of bytes from n to the next multiple of 8.
func padding(n uint64) int { return int(-n & 7) }

// clampInt returns the smaller of n and limit.
func clampInt(n uint64, limit int) int {
	if n > math.MaxInt || int(n) > limit {
		return limit
	}
	return int(n)
}

// Message is a received message.
type Message struct {
	Header
	Body []byte
}
