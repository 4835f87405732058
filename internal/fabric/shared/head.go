package shared

import (
	"encoding/binary"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// A head in a descriptor is a sequence of strings, each a uvarint of its length and its bytes,
// and of metadata: a uvarint of the number of pairs, then key and value of each.

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendMetadata(b []byte, md metadata.MD) []byte {
	n := 0
	for _, values := range md {
		n += len(values)
	}
	b = binary.AppendUvarint(b, uint64(n))
	for key, values := range md {
		for _, value := range values {
			b = appendString(appendString(b, key), value)
		}
	}
	return b
}

// A scanner decodes a private copy of a head. After the first error every value is zero.
type scanner struct {
	rest string
	err  error
}

func (s *scanner) fail(reason string) {
	if s.err == nil {
		s.err = outboard.Errorf(outboard.Protocol, "head", "%s", reason)
	}
	s.rest = ""
}

func (s *scanner) uint() uint64 {
	var v uint64
	for i := 0; i < len(s.rest) && i < binary.MaxVarintLen64; i++ {
		c := s.rest[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			s.rest = s.rest[i+1:]
			return v
		}
	}
	s.fail("truncated varint")
	return 0
}

func (s *scanner) string() string {
	n := s.uint()
	if n > uint64(len(s.rest)) {
		s.fail("string beyond the end")
		return ""
	}
	text := s.rest[:n]
	s.rest = s.rest[n:]
	return text
}

func (s *scanner) metadata() metadata.MD {
	n := s.uint()
	if n > uint64(len(s.rest)/2) {
		s.fail("more metadata than bytes")
	}
	if n == 0 || s.err != nil {
		return nil
	}
	md := make(metadata.MD, min(n, 16))
	for range n {
		key, value := s.string(), s.string()
		md[key] = append(md[key], value)
	}
	return md
}

func (s *scanner) end() error {
	if s.err == nil && s.rest != "" {
		s.fail("bytes after the end")
	}
	return s.err
}

// appendHead encodes the parts of a head that the descriptor does not carry: none for a plain call.
func appendHead(b []byte, h *call.Head) []byte {
	if len(h.Metadata) == 0 && h.Tenant == "" && h.Peer == "" && h.Encoding == "" && h.Subtype == "" && h.Priority == 0 && h.Attempt == 0 {
		return b
	}
	for _, s := range []string{h.Tenant, h.Peer, h.Encoding, h.Subtype} {
		b = appendString(b, s)
	}
	b = append(b, byte(h.Priority))
	b = binary.AppendUvarint(b, uint64(max(h.Attempt, 0)))
	return appendMetadata(b, h.Metadata)
}

// scanHead decodes a head. The caller of scanHead decides whether to trust its identity.
func scanHead(s *scanner, h *call.Head) error {
	if s.rest == "" {
		return s.err
	}
	h.Tenant, h.Peer, h.Encoding, h.Subtype = s.string(), s.string(), s.string(), s.string()
	if s.rest == "" {
		s.fail("no priority")
		return s.err
	}
	h.Priority = min(max(call.Priority(s.rest[0]), call.Low), call.High)
	s.rest = s.rest[1:]
	h.Attempt = int(min(s.uint(), 1<<30))
	h.Metadata = s.metadata()
	return s.end()
}

// validMethod reports whether name has the form of a method.
func validMethod(name string) bool {
	return len(name) <= 1024 && strings.HasPrefix(name, "/") && strings.Count(name, "/") >= 2
}

// appendOutcome encodes the head of a reply or a status.
func appendOutcome(b []byte, e call.End, s *status.Status) []byte {
	if s == nil && len(e.Header) == 0 && len(e.Trailer) == 0 {
		return b
	}
	b = appendMetadata(appendMetadata(b, e.Header), e.Trailer)
	if s != nil {
		b = appendString(b, s.Message())
		b = appendDetails(b, s)
	}
	return b
}

func appendDetails(b []byte, s *status.Status) []byte {
	p := s.Proto()
	if len(p.GetDetails()) == 0 {
		return b
	}
	details, err := proto.Marshal(&spb.Status{Details: p.GetDetails()})
	if err != nil {
		return b
	}
	return append(b, details...)
}

// scanOutcome decodes the head of a reply or a status with the descriptor's code.
func scanOutcome(head []byte, code codes.Code, text bool) (call.End, error, error) {
	if len(head) == 0 && !text {
		return call.End{}, nil, nil
	}
	s := &scanner{rest: string(head)}
	e := call.End{Header: s.metadata(), Trailer: s.metadata()}
	if !text {
		return e, nil, s.end()
	}
	message := s.string()
	details, err := scanDetails(s)
	if err != nil {
		return e, nil, err
	}
	if code == codes.OK {
		return e, nil, nil
	}
	return e, status.FromProto(&spb.Status{Code: int32(code), Message: message, Details: details}).Err(), nil
}

func scanDetails(s *scanner) ([]*anypb.Any, error) {
	if s.err != nil || s.rest == "" {
		return nil, s.err
	}
	var p spb.Status
	if err := proto.Unmarshal([]byte(s.rest), &p); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "head", "status details: %w", err)
	}
	return p.GetDetails(), nil
}
