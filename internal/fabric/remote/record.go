package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/internal/fabric/buffers"
)

type recordType uint8

// The records of a call's stream.
const (
	recordMessage    recordType = 1
	recordCompressed recordType = 2
	recordHeader     recordType = 3
	recordStatus     recordType = 4
)

const (
	recordSize = 5 // type and length
	maxLength  = math.MaxInt32
)

func appendRecord(b []byte, t recordType, length int) []byte {
	return binary.LittleEndian.AppendUint32(append(b, byte(t)), uint32(length))
}

// parser splits a stream into records as its bytes arrive.
type parser struct {
	callee     bool          // reads a caller's records
	buffers    *buffers.Pool // for messages that are freed; nil: none is used
	maxMessage int

	head       [recordSize]byte
	headBytes  int // bytes of head
	length     int
	data       []byte          // of the record; it grows as bytes arrive
	buf        *buffers.Buffer // holds data; nil: data has memory of its own
	statusSeen bool            // a status arrives, or has arrived
}

// errTooLong is the error of a record beyond its limit.
var errTooLong = errors.New("too long")

// space returns the memory for the next bytes.
func (p *parser) space() []byte {
	if p.headBytes < recordSize {
		return p.head[p.headBytes:]
	}
	if len(p.data) == cap(p.data) {
		p.grow(buffers.NextSize(len(p.data), p.length))
	}
	return p.data[len(p.data):cap(p.data)]
}

// grow provides memory for n bytes of the record, and keeps the bytes that have arrived.
func (p *parser) grow(n int) {
	before, data := p.buf, p.data
	if p.buffers == nil || n < buffers.MinPooled {
		p.buf, p.data = nil, make([]byte, len(data), n)
	} else {
		p.buf = p.buffers.Get(n)
		p.data = p.buf.Data[:len(data):n]
	}
	copy(p.data, data)
	if before != nil {
		p.buffers.Put(before)
	}
}

// filled counts n bytes that were read into space, and reports whether a record is complete.
func (p *parser) filled(n int) (complete bool, err error) {
	if p.headBytes == recordSize {
		p.data = p.data[:len(p.data)+n]
		return len(p.data) == p.length, nil
	}
	p.headBytes += n
	if p.headBytes < recordSize {
		return false, nil
	}
	if err := p.parseRecordHead(); err != nil {
		return false, err
	}
	return p.length == 0, nil
}

// parseRecordHead checks a record's head and allocates memory for the record.
func (p *parser) parseRecordHead() error {
	length := binary.LittleEndian.Uint32(p.head[1:])
	most := uint32(maxHead)
	switch t := p.typ(); {
	case p.statusSeen:
		return errors.New("record after the status")
	case t == recordMessage, t == recordCompressed:
		most = uint32(p.maxMessage)
	case p.callee || t != recordHeader && t != recordStatus:
		return fmt.Errorf("unexpected record of type %d", t)
	}
	if length > most {
		return fmt.Errorf("%w: %d bytes, at most %d", errTooLong, length, most)
	}
	p.length = int(length)
	p.data, p.buf = nil, nil
	p.grow(min(p.length, buffers.FirstSize))
	p.statusSeen = p.typ() == recordStatus
	return nil
}

// longRecord is the length from which a record may exceed the rest of its stream's window.
const longRecord = 64 << 10

// isLongAhead reports whether the head of a long record has arrived, and no other byte of it.
func (p *parser) isLongAhead() bool {
	return p.headBytes == recordSize && p.length >= longRecord && len(p.data) == 0
}

func (p *parser) typ() recordType { return recordType(p.head[0]) }

// nextRecord returns the complete record and its buffer, and prepares for the next record.
func (p *parser) nextRecord() ([]byte, *buffers.Buffer) {
	data, lies := p.data, p.buf
	p.data, p.buf, p.headBytes = nil, nil, 0
	return data, lies
}

// atBoundary reports whether no record has begun.
func (p *parser) atBoundary() bool { return p.headBytes == 0 }

// appendStatus writes a status record with its trailer. Details that do not fit are left out; a
// trailer that does not fit changes the status.
func appendStatus(b []byte, err error, trailer metadata.MD) []byte {
	at := len(b)
	b = appendRecord(b, recordStatus, 0)
	b = appendOutcome(b, err, trailer)
	binary.LittleEndian.PutUint32(b[at+1:], uint32(len(b)-at-recordSize))
	return b
}

// okOutcome is the size of the payload of OK without a trailer.
const okOutcome = 4 + 4 + 4 + 2

// maxText bounds the message of a status, in bytes.
const maxText = 16 << 10

func appendOutcome(b []byte, err error, trailer metadata.MD) []byte {
	at := len(b)
	if err == nil && len(trailer) == 0 {
		return append(b, make([]byte, okOutcome)...)
	}
	s := statusFrom(err)
	text := truncateText(s.Message())
	var details []byte
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if details, err = proto.Marshal(p); err != nil || len(details) > maxHead/2 {
			details = nil
		}
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Code()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(details)))
	b = append(b, details...)
	encoded, err := appendMetadata(b, trailer)
	if err == nil && len(encoded)-at > maxHead {
		err = errTooLong
	}
	if err != nil {
		return appendOutcome(b[:at], withoutTrailer(s, err).Err(), nil)
	}
	return encoded
}

// withoutTrailer returns the status of a call whose trailer cannot be sent: a failed call keeps its
// code, and its message says why the trailer is missing.
func withoutTrailer(s *status.Status, err error) *status.Status {
	if s.Code() == codes.OK {
		return status.Newf(codeOfEncoding(err), "trailer: %v", err)
	}
	return status.Newf(s.Code(), "%s (trailer not sent: %v)", s.Message()[:min(len(s.Message()), maxText/2)], err)
}

// statusFrom returns the status of a handler's error.
func statusFrom(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	return status.FromContextError(err)
}

func truncateText(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	return text[:min(len(text), maxText)]
}

// parseStatus decodes a status record: ended is io.EOF for OK, else an error of package status; err
// reports that the record is malformed.
func parseStatus(b []byte) (ended error, trailer metadata.MD, err error) {
	r := fields{b: b}
	code := codes.Code(r.u32())
	text, details := r.bytes32(), r.bytes32()
	trailer = r.metadata()
	if r.err != nil {
		return nil, nil, r.err
	}
	if code == codes.OK {
		return io.EOF, trailer, nil
	}
	if !utf8.Valid(text) {
		return nil, nil, errors.New("words are not UTF-8")
	}
	if len(details) == 0 {
		return status.Error(code, string(text)), trailer, nil
	}
	p := new(spb.Status)
	if err := proto.Unmarshal(details, p); err != nil {
		return nil, nil, fmt.Errorf("details: %w", err)
	}
	p.Code, p.Message = int32(code), string(text)
	return status.FromProto(p).Err(), trailer, nil
}
