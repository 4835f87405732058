package grpcconn

// The types and flags of HTTP/2's frames that a frameScanner's users distinguish (RFC 9113, section
// 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameContinuation = 0x9

	flagEndStream = 0x1
	flagPadded    = 0x8
)

// frameHead is the length of the header of a frame in bytes.
const frameHead = 9

// Preface is what a client of HTTP/2 sends first (RFC 9113, section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// A frameScanner finds the frames in one direction of a connection (RFC 9113, section 4.1). It does
// not check them: the server does. The zero value expects a frame's header.
type frameScanner struct {
	head    [frameHead]byte
	have    int // bytes of head
	left    int // bytes of the payload that follow
	padding int // bytes of padding among them, with the field for its length; unknownPadding: see there
}

// unknownPadding stands for the padding of a frame whose payload has not begun.
const unknownPadding = -1

// afterPreface returns a scanner for the direction from the client, which begins with the preface:
// it counts as data of the connection itself, stream 0.
func afterPreface() frameScanner { return frameScanner{have: frameHead, left: len(Preface)} }

// A framePart is a frame, or the part of one that has been scanned.
type framePart struct {
	kind, flags byte
	stream      uint32
	payload     []byte
	bytes       int  // of the payload, without padding
	first, last bool // whether the part begins and ends the frame
}

// endsStream reports whether the part begins a frame after which its sender sends nothing more on
// the stream but perhaps a reset.
func (p *framePart) endsStream() bool {
	return p.first && p.flags&flagEndStream != 0 && (p.kind == frameData || p.kind == frameHeaders)
}

// scan calls visit for each part of b that belongs to another frame, until visit returns true. It
// returns the number of scanned bytes.
func (s *frameScanner) scan(b []byte, visit func(*framePart) (stop bool)) (n int) {
	for n < len(b) {
		first := s.have < frameHead
		if first {
			k := copy(s.head[s.have:], b[n:])
			s.have, n = s.have+k, n+k
			if s.have < frameHead {
				return n
			}
			s.beginPayload()
		}
		k := min(s.left, len(b)-n)
		part := s.part(b[n:n+k], first)
		n += k
		if part.last {
			s.have = 0
		}
		if visit(&part) {
			return n
		}
	}
	return n
}

// beginPayload reads the length of the payload from the header.
func (s *frameScanner) beginPayload() {
	s.left = int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2])
	s.padding = 0
	if s.head[3] == frameData && s.head[4]&flagPadded != 0 {
		s.padding = unknownPadding
	}
}

// part returns the next part of a frame, whose payload is b.
func (s *frameScanner) part(b []byte, first bool) framePart {
	s.left -= len(b)
	return framePart{
		kind: s.head[3], flags: s.head[4],
		stream:  uint32(s.head[5]&0x7f)<<24 | uint32(s.head[6])<<16 | uint32(s.head[7])<<8 | uint32(s.head[8]),
		payload: b, bytes: len(b) - s.paddingOf(b), first: first, last: s.left == 0,
	}
}

// paddingOf returns how many bytes of b count as padding. All of a frame's padding is deducted from
// the beginning of its payload, where its length is: only sums matter.
func (s *frameScanner) paddingOf(b []byte) int {
	if s.padding == unknownPadding && len(b) > 0 {
		s.padding = 1 + int(b[0])
	}
	n := min(max(s.padding, 0), len(b))
	if n > 0 {
		s.padding -= n
	}
	return n
}
