package remote_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// What follows is written from PROTOCOL.md alone and shares nothing with the
// packages that it checks.

var le = binary.LittleEndian

const greeting = "\x4f\x42\x46\x41\x42\x52\x00\x01"

// wireFrame is one frame.
type wireFrame struct {
	typ     byte
	stream  uint32
	payload []byte
}

func (f wireFrame) encode() []byte {
	n := len(f.payload)
	b := []byte{byte(n), byte(n >> 8), byte(n >> 16), f.typ}
	return append(le.AppendUint32(b, f.stream), f.payload...)
}

func readFrame(r io.Reader) (f wireFrame, err error) {
	var h [8]byte
	if _, err = io.ReadFull(r, h[:]); err != nil {
		return f, err
	}
	f.typ, f.stream = h[3], le.Uint32(h[4:])
	f.payload = make([]byte, int(h[0])|int(h[1])<<8|int(h[2])<<16)
	if _, err = io.ReadFull(r, f.payload); err != nil {
		return f, io.ErrUnexpectedEOF
	}
	n := len(f.payload)
	ok := false
	switch f.typ {
	case 1:
		ok = n >= 2 && n <= 65536
	case 2:
		ok = n >= 1 && n <= 131072
	case 3:
		ok = n == 4
	case 4:
		ok = n == 0
	case 5, 8:
		ok = n >= 2 && n <= 1026
	case 6, 7:
		ok = n == 8
	}
	if onStream := f.typ < 6; !ok || onStream != (f.stream != 0) {
		return f, fmt.Errorf("frame of type %d, %d bytes, stream %d", f.typ, n, f.stream)
	}
	return f, nil
}

// cursor reads fields.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) next(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return make([]byte, min(n, 8))
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) str16() string { return string(c.next(int(le.Uint16(c.next(2))))) }
func (c *cursor) str32() string { return string(c.next(int(le.Uint32(c.next(4))))) }

func (c *cursor) values() map[string][]string {
	m := map[string][]string{}
	for n := le.Uint16(c.next(2)); n > 0 && !c.bad; n-- {
		k := c.str16()
		m[k] = append(m[k], c.str32())
		if strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || k == "" {
			c.bad = true
		}
	}
	return m
}

func str16(b []byte, s string) []byte { return append(le.AppendUint16(b, uint16(len(s))), s...) }
func str32(b []byte, s string) []byte { return append(le.AppendUint32(b, uint32(len(s))), s...) }

func values(b []byte, pairs ...string) []byte {
	b = le.AppendUint16(b, uint16(len(pairs)/2))
	for i := 0; i < len(pairs); i += 2 {
		b = str32(str16(b, pairs[i]), pairs[i+1])
	}
	return b
}

// wireHead is a call's head.
type wireHead struct {
	Streaming        bool
	Priority         int8
	Attempt          uint8
	Left             uint64
	Method           string
	Encoding         string
	Subtype          string
	Tenant, Peer     string
	Metadata         map[string][]string
	metadataToEncode []string
}

func (h wireHead) encode() []byte {
	b := []byte{0, byte(h.Priority), h.Attempt}
	if h.Streaming {
		b[0] = 1
	}
	b = le.AppendUint64(b, h.Left)
	for _, s := range []string{h.Method, h.Encoding, h.Subtype, h.Tenant, h.Peer} {
		b = str16(b, s)
	}
	return values(b, h.metadataToEncode...)
}

func decodeHead(b []byte) (h wireHead, err error) {
	c := cursor{b: b}
	first := c.next(3)
	h.Streaming, h.Priority, h.Attempt = first[0]&1 != 0, int8(first[1]), first[2]
	h.Left = le.Uint64(c.next(8))
	for _, s := range []*string{&h.Method, &h.Encoding, &h.Subtype, &h.Tenant, &h.Peer} {
		*s = c.str16()
	}
	h.Metadata = c.values()
	if c.bad || !strings.HasPrefix(h.Method, "/") {
		return h, fmt.Errorf("head %q", b)
	}
	return h, nil
}

// wireRecord is one record.
type wireRecord struct {
	typ     byte
	payload string
}

func (r wireRecord) encode() []byte {
	return str32([]byte{r.typ}, r.payload)
}

// wireStatus is a STATUS.
type wireStatus struct {
	Code          uint32
	Text, Details string
	Trailer       map[string][]string
}

func decodeStatus(b string) (s wireStatus, err error) {
	c := cursor{b: []byte(b)}
	s.Code = le.Uint32(c.next(4))
	s.Text, s.Details, s.Trailer = c.str32(), c.str32(), c.values()
	if c.bad {
		err = fmt.Errorf("status %q", b)
	}
	return s, err
}

// wireCall is a call as it was on the wire.
type wireCall struct {
	Head              wireHead
	Requests          []string
	Header            map[string][]string
	Responses         []string
	Status            *wireStatus
	RequestsEnd       bool
	CancelledByCaller bool
}

// half is one direction of a recorded connection.
type half struct {
	frames []wireFrame
	bytes  map[uint32][]byte // of DATA
	ended  map[uint32]bool
	reset  map[uint32]bool
	rest   int // bytes of a frame that was cut
}

func decodeHalf(b []byte) (h half, err error) {
	h = half{bytes: map[uint32][]byte{}, ended: map[uint32]bool{}, reset: map[uint32]bool{}}
	if len(b) < 8 || string(b[:8]) != greeting {
		return h, fmt.Errorf("beginning %q", b[:min(8, len(b))])
	}
	for r := strings.NewReader(string(b[8:])); r.Len() > 0; {
		before := r.Len()
		f, err := readFrame(r)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			h.rest = before
			return h, nil
		}
		if err != nil {
			return h, err
		}
		h.frames = append(h.frames, f)
		switch f.typ {
		case 2:
			h.bytes[f.stream] = append(h.bytes[f.stream], f.payload...)
			fallthrough
		case 4:
			if h.ended[f.stream] {
				return h, fmt.Errorf("frame of type %d on stream %d after END", f.typ, f.stream)
			}
			h.ended[f.stream] = f.typ == 4
		case 5:
			h.reset[f.stream] = true
		}
	}
	return h, nil
}

// decodeCalls reads what a client and a server have sent each other, and returns
// the client's calls in order.
func decodeCalls(client, server []byte) (calls []wireCall, err error) {
	c, err := decodeHalf(client)
	if err != nil {
		return nil, err
	}
	s, err := decodeHalf(server)
	if err != nil {
		return nil, err
	}
	last := uint32(0)
	for _, f := range c.frames {
		if f.typ != 1 {
			continue
		}
		if f.stream%2 == 0 || f.stream <= last {
			return nil, fmt.Errorf("client opened stream %d after %d", f.stream, last)
		}
		last = f.stream
		open := cursor{b: f.payload}
		if open.str16() != "call" || open.bad {
			continue
		}
		call := wireCall{RequestsEnd: c.ended[f.stream], CancelledByCaller: c.reset[f.stream]}
		if call.Head, err = decodeHead(open.b); err != nil {
			return nil, err
		}
		if err := call.records(c.bytes[f.stream], s.bytes[f.stream]); err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	return calls, nil
}

func (w *wireCall) records(caller, callee []byte) error {
	for c := (cursor{b: caller}); len(c.b) > 0; {
		typ, payload := c.next(1)[0], c.str32()
		if c.bad || typ != 1 && typ != 2 {
			return fmt.Errorf("caller's record of type %d", typ)
		}
		w.Requests = append(w.Requests, payload)
	}
	for c := (cursor{b: callee}); len(c.b) > 0; {
		typ, payload := c.next(1)[0], c.str32()
		if c.bad || w.Status != nil {
			return fmt.Errorf("callee's record of type %d is cut, or after the status", typ)
		}
		switch typ {
		case 1, 2:
			w.Responses = append(w.Responses, payload)
		case 3:
			if w.Header != nil || len(w.Responses) > 0 {
				return errors.New("late header")
			}
			header := cursor{b: []byte(payload)}
			w.Header = header.values()
		case 4:
			status, err := decodeStatus(payload)
			if err != nil {
				return err
			}
			w.Status = &status
		default:
			return fmt.Errorf("callee's record of type %d", typ)
		}
	}
	return nil
}

// wireClient is a client that makes one call after another.
type wireClient struct {
	rw    io.ReadWriter
	next  uint32
	early []byte // what first has read
}

func newWireClient(rw io.ReadWriter) (*wireClient, error) {
	if _, err := io.WriteString(rw, greeting); err != nil {
		return nil, err
	}
	var theirs [8]byte
	if _, err := io.ReadFull(rw, theirs[:]); err != nil || string(theirs[:]) != greeting {
		return nil, fmt.Errorf("server began with %q, %w", theirs, err)
	}
	return &wireClient{rw: rw, next: 1}, nil
}

// open begins a call and sends its requests, and the end unless it stays open.
func (c *wireClient) open(h wireHead, requests []string, staysOpen bool) (stream uint32, err error) {
	stream = c.next
	c.next += 2
	b := wireFrame{1, stream, append(str16(nil, "call"), h.encode()...)}.encode()
	for _, r := range requests {
		all := wireRecord{1, r}.encode()
		for len(all) > 0 { // in crumbs: records and frames have nothing to do with each other
			n := min(len(all), 7)
			b = append(b, wireFrame{2, stream, all[:n]}.encode()...)
			all = all[n:]
		}
	}
	if !staysOpen {
		b = append(b, wireFrame{4, stream, nil}.encode()...)
	}
	_, err = c.rw.Write(b)
	return stream, err
}

// cancel gives the call up.
func (c *wireClient) cancel(stream uint32) error {
	_, err := c.rw.Write(wireFrame{5, stream, []byte{0, 0}}.encode())
	return err
}

// first reads the first bytes that the callee says on the stream.
func (c *wireClient) first(stream uint32) error {
	for {
		f, err := readFrame(c.rw)
		if err != nil || f.typ == 2 && f.stream == stream {
			c.early = f.payload
			return err
		}
	}
}

// answer reads until the stream is over, granting credit and answering pings.
func (c *wireClient) answer(stream uint32) (w wireCall, err error) {
	callee := c.early
	c.early = nil
	for {
		f, err := readFrame(c.rw)
		if err != nil {
			return w, err
		}
		switch {
		case f.typ == 6:
			_, err = c.rw.Write(wireFrame{7, 0, f.payload}.encode())
		case f.typ == 8:
			err = fmt.Errorf("farewell %q", f.payload)
		case f.stream != stream:
		case f.typ == 2:
			callee = append(callee, f.payload...)
			_, err = c.rw.Write(wireFrame{3, stream, le.AppendUint32(nil, uint32(len(f.payload)))}.encode())
		case f.typ == 4:
			err := w.records(nil, callee)
			return w, err
		case f.typ == 5:
			return w, fmt.Errorf("reset of kind %d: %s", le.Uint16(f.payload), f.payload[2:])
		}
		if err != nil {
			return w, err
		}
	}
}
