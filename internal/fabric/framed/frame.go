package framed

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
)

// The wire format, see PROTOCOL.md. The numbers never change.
const (
	preface    = "OBFABR\x00\x01" // the last byte is the version
	headerSize = 8

	// maxData bounds the payload of a DATA frame: small enough to keep head-of-line blocking
	// short, large enough to amortise the frame.
	maxData   = 128 << 10
	maxOpen   = 64 << 10
	maxMethod = 255
	maxText   = 1024

	// firstWindow is the flow-control window that each direction of a stream begins with.
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

// frameLimits has the bounds of the payload of each frame type, and whether the frame belongs to a
// stream.
var frameLimits = [...]struct {
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

// header is the header of a frame: a word of length (24 bits) and type (8 bits), and a word of
// stream id.
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
	if h.typ == 0 || int(h.typ) >= len(frameLimits) {
		return h, violation("unknown frame type %d", h.typ)
	}
	shape := frameLimits[h.typ]
	if h.length < shape.least || h.length > shape.most {
		return h, violation("frame type %d of %d bytes", h.typ, h.length)
	}
	if shape.onStream != (h.stream != 0) {
		return h, violation("frame type %d on stream %d", h.typ, h.stream)
	}
	return h, nil
}

// violation returns the error for a peer that breaks the protocol.
func violation(format string, args ...any) error {
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
		return nil, nil, violation("method name of %d bytes in a frame of %d", n, len(p))
	}
	return p[2 : 2+n], p[2+n:], nil
}

func appendCredit(b []byte, stream, n uint32) []byte {
	return binary.LittleEndian.AppendUint32(header{frameCredit, 4, stream}.append(b), n)
}

func appendPing(b []byte, typ frameType, stamp uint64) []byte {
	return binary.LittleEndian.AppendUint64(header{typ, 8, 0}.append(b), stamp)
}

// appendError encodes a RESET or a GOAWAY: an error's kind and text.
func appendError(b []byte, typ frameType, stream uint32, kind outboard.Kind, text string) []byte {
	for len(text) > maxText || !utf8.ValidString(text) {
		text = truncateText(text)
	}
	b = header{typ, 2 + len(text), stream}.append(b)
	b = binary.LittleEndian.AppendUint16(b, uint16(kind))
	return append(b, text...)
}

// truncateText converts text to valid UTF-8 of at most maxText bytes.
func truncateText(text string) string {
	valid := fmt.Sprintf("%.1000q", text) // quoting makes any bytes valid
	return valid[:min(len(valid), maxText)]
}

func parseError(p []byte) (outboard.Kind, string, error) {
	if !utf8.Valid(p[2:]) {
		return 0, "", violation("error text is not UTF-8")
	}
	return outboard.Kind(binary.LittleEndian.Uint16(p)), string(p[2:]), nil
}
