package bridge

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/outboard-run/outboard"
)

// Version is the version of the format of a session's bytes: the ring's layout, the messages and
// the openings. Both sides must have the same; every incompatible change increments it. An added
// message is compatible if the worker's snapshot offers it and clients send it only then.
const Version = 3

// Method is the fabric's method of a session's streams.
const Method = "session"

// A Kind is the purpose of a session's stream.
type Kind byte

// The kinds of streams.
const (
	// Open begins a session; the stream carries its bytes.
	Open Kind = iota
	// Resume carries the bytes of a session whose connection was lost. The answer begins with the
	// number of bytes that the device's side has received, in eight bytes.
	Resume
	// Acks carries acknowledgements, in both directions.
	Acks
	kinds
)

// A Token identifies a session to its device's node, and is secret.
type Token [16]byte

// NewToken returns a random token.
func NewToken() (t Token) {
	_, _ = rand.Read(t[:]) // never fails
	return t
}

// An Opening is the header of a stream: a byte each for the version and the kind, the token, the
// received bytes (u64), the patience in milliseconds (u32), and the claim. Integers are little
// endian.
type Opening struct {
	Kind  Kind
	Token Token
	// Received is the number of the session's bytes that the program's side has received.
	Received uint64
	// Patience is how long the device's side keeps the session without a connection.
	Patience time.Duration
	// Claim is the lease's claim, in streams of kind Open.
	Claim []byte
}

const openingSize = 2 + len(Token{}) + 8 + 4

// maxPatience bounds the Patience that a program may request from a device's node.
const maxPatience = 10 * time.Minute

// Marshal returns the encoded header.
func (o Opening) Marshal() []byte {
	b := make([]byte, 0, openingSize+len(o.Claim))
	b = append(b, Version, byte(o.Kind))
	b = append(b, o.Token[:]...)
	b = binary.LittleEndian.AppendUint64(b, o.Received)
	b = binary.LittleEndian.AppendUint32(b, uint32(min(o.Patience, maxPatience).Milliseconds())) //nolint:gosec // Bounded.
	return append(b, o.Claim...)
}

// ParseOpening decodes a header. The claim aliases b.
func ParseOpening(b []byte) (Opening, error) {
	var o Opening
	if len(b) == 0 {
		return o, outboard.Errorf(outboard.Protocol, "session", "no header")
	}
	if err := CheckVersion(int(b[0])); err != nil {
		return o, err
	}
	if len(b) < openingSize || Kind(b[1]) >= kinds {
		return o, outboard.Errorf(outboard.Protocol, "session", "a header of %d bytes and kind %d", len(b), b[min(1, len(b)-1)])
	}
	o.Kind = Kind(b[1])
	b = b[2+copy(o.Token[:], b[2:]):]
	o.Received = binary.LittleEndian.Uint64(b)
	o.Patience = min(time.Duration(binary.LittleEndian.Uint32(b[8:]))*time.Millisecond, maxPatience)
	o.Claim = b[12:]
	return o, nil
}

// CheckVersion returns an error with a remedy when the other side has another version of sessions.
func CheckVersion(version int) error {
	if version == Version {
		return nil
	}
	return outboard.Errorf(outboard.Protocol, "session", "the device's node speaks version %d of sessions, the program's outboard version %d: run the same release on both",
		Version, version)
}
