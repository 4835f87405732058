package framed

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
)

// The wire. PROTOCOL.md describes it; the numbers never change.
const (
	preface    = "OBFABR\x00\x01" // the last byte is the version
	headerSize = 8

	// maxData is the most that one DATA frame carries: small enough that
	// another stream's frame need not wait long, large enough to be cheap.
	maxData   = 128 << 10
	maxOpen   = 64 << 10
	maxMethod = 255
	maxText   = 1024

	// firstWindow is the credit that each direction of a stream begins with,
	// before its receiver has said anything.
	firstWindow = 256 << 10
	maxCredit   = 1<<31 - 1
)

type frameType uint8

const (
	frameOpen   frameType = 1
	frameData   frameType = 2
	frameCredit frameType = 3
	frameEnd    frameType = 4
	frameReset  frameType = 5
	framePing   frameType = 6
	framePong   frameType = 7
	frameGoAway frameType = 8
)

// shape says how long a frame's payload may be, and whether it belongs to a
// stream.
var shapes = [...]struct {
	least, most int
	onStream    bool
}{
	frameOpen:   {2, maxOpen, true},
	frameData:   {1, maxData, true},
	frameCredit: {4, 4, true},
	frameEnd:    {0, 0, true},
	frameReset:  {2, 2 + maxText, true},
	framePing:   {8, 8, false},
	framePong:   {8, 8, false},
	frameGoAway: {2, 2 + maxText, false},
}

// header is a frame's first eight bytes: a word of length (24 bits) and type
// (8 bits), and a word of stream id.
type header struct {
	typ    frameType
	length int
	stream uint32
}

func (h header) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(h.length)|uint32(h.typ)<<24)
	return binary.LittleEndian.AppendUint32(b, h.stream)
}

func parseHeader(b []byte) (header, error) {
	word := binary.LittleEndian.Uint32(b)
	h := header{typ: frameType(word >> 24), length: int(word & 0xffffff), stream: binary.LittleEndian.Uint32(b[4:])}
	if h.typ == 0 || int(h.typ) >= len(shapes) {
		return h, broken("unknown frame type %d", h.typ)
	}
	shape := shapes[h.typ]
	if h.length < shape.least || h.length > shape.most {
		return h, broken("frame type %d of %d bytes", h.typ, h.length)
	}
	if shape.onStream != (h.stream != 0) {
		return h, broken("frame type %d on stream %d", h.typ, h.stream)
	}
	return h, nil
}

// broken is the verdict on a peer that does not follow the protocol.
func broken(format string, args ...any) error {
	return outboard.Errorf(outboard.Protocol, "fabric", format, args...)
}

func appendOpen(b []byte, stream uint32, method string, head []byte) []byte {
	b = header{frameOpen, 2 + len(method) + len(head), stream}.append(b)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(method)))
	return append(append(b, method...), head...)
}

func parseOpen(p []byte) (method, head []byte, err error) {
	n := int(binary.LittleEndian.Uint16(p))
	if n == 0 || n > maxMethod || n > len(p)-2 || !utf8.Valid(p[2:2+n]) {
		return nil, nil, broken("method name of %d bytes in a frame of %d", n, len(p))
	}
	return p[2 : 2+n], p[2+n:], nil
}

func appendCredit(b []byte, stream, n uint32) []byte {
	return binary.LittleEndian.AppendUint32(header{frameCredit, 4, stream}.append(b), n)
}

func appendPing(b []byte, typ frameType, stamp uint64) []byte {
	return binary.LittleEndian.AppendUint64(header{typ, 8, 0}.append(b), stamp)
}

// appendVerdict writes RESET and GOAWAY: an error's kind and text.
func appendVerdict(b []byte, typ frameType, stream uint32, kind outboard.Kind, text string) []byte {
	for len(text) > maxText || !utf8.ValidString(text) {
		text = shorten(text)
	}
	b = header{typ, 2 + len(text), stream}.append(b)
	b = binary.LittleEndian.AppendUint16(b, uint16(kind))
	return append(b, text...)
}

// shorten makes text valid and short enough for the wire.
func shorten(text string) string {
	valid := fmt.Sprintf("%.1000q", text) // quoting makes any bytes valid
	return valid[:min(len(valid), maxText)]
}

func parseVerdict(p []byte) (outboard.Kind, string, error) {
	if !utf8.Valid(p[2:]) {
		return 0, "", broken("error text is not UTF-8")
	}
	return outboard.Kind(binary.LittleEndian.Uint16(p)), string(p[2:]), nil
}
