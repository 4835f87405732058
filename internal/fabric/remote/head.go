package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// The wire. PROTOCOL.md describes it; the numbers never change.
const (
	callMethod  = "call"
	drainMethod = "drain"

	flagStreaming    = 1
	flagWaitForReady = 2
	// maxHead bounds heads, headers and statuses by the capacity of an OPEN frame.
	maxHead = 64<<10 - 2 - len(callMethod)
	// maxValues is the greatest number that the count of metadata values can hold; maxHead is the
	// tighter bound.
	maxValues = math.MaxUint16
)

var errTruncated = errors.New("it ends too early")

// appendHead writes a call's head as the header of OPEN.
func appendHead(b []byte, h *call.Head, now time.Time, trusted bool) ([]byte, error) {
	flags := byte(0)
	if h.Streaming {
		flags |= flagStreaming
	}
	if h.WaitForReady {
		flags |= flagWaitForReady
	}
	b = append(b, flags, byte(h.Priority), byte(min(max(h.Attempt, 0), math.MaxUint8)))
	b = binary.LittleEndian.AppendUint64(b, timeLeft(h.Deadline, now))
	tenant, peer := "", ""
	if trusted {
		tenant, peer = h.Tenant, h.Peer
	}
	for _, s := range [...]string{h.Method, h.Encoding, h.Subtype, tenant, peer} {
		if len(s) > math.MaxUint16 {
			return nil, fmt.Errorf("a name of %d bytes is too long", len(s))
		}
		b = appendString(b, s)
	}
	return appendMetadata(b, h.Metadata)
}

// timeLeft returns the nanoseconds until the deadline, at least 1, or 0 without a deadline.
func timeLeft(deadline, now time.Time) uint64 {
	if deadline.IsZero() {
		return 0
	}
	return uint64(max(deadline.Sub(now), 1))
}

// parseHead decodes a head. Its strings are copies, except for the method, which intern returns.
func parseHead(b []byte, now time.Time, intern func([]byte) string) (*call.Head, error) {
	r := fields{b: b}
	h := new(call.Head)
	first := r.next(3)
	if first == nil {
		return nil, errTruncated
	}
	h.Streaming = first[0]&flagStreaming != 0
	h.WaitForReady = first[0]&flagWaitForReady != 0
	h.Priority = min(max(call.Priority(int8(first[1])), call.Low), call.High)
	h.Attempt = int(first[2])
	if left := r.u64(); left > 0 {
		h.Deadline = now.Add(time.Duration(min(left, math.MaxInt64)))
	}
	h.Method = intern(r.bytes16())
	h.Encoding = string(r.bytes16())
	h.Subtype = string(r.bytes16())
	h.Tenant = string(r.bytes16())
	h.Peer = string(r.bytes16())
	h.Metadata = r.metadata()
	if r.err == nil && !strings.HasPrefix(h.Method, "/") {
		r.err = fmt.Errorf("method %q does not begin with a slash", h.Method)
	}
	return h, r.err
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// appendMetadata encodes metadata, with the keys in no particular order.
func appendMetadata(b []byte, md metadata.MD) ([]byte, error) {
	n, at := 0, len(b)
	b = append(b, 0, 0)
	for key, values := range md {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		for _, value := range values {
			if err := checkValue(key, value); err != nil {
				return nil, err
			}
			b = appendString(b, key)
			b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
			b = append(b, value...)
		}
		n += len(values)
	}
	if n > maxValues || len(b) > maxHead {
		return nil, fmt.Errorf("%w: metadata of %d values and %d bytes, at most %d bytes", errTooLong, n, len(b)-at, maxHead)
	}
	binary.LittleEndian.PutUint16(b[at:], uint16(n))
	return b, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > math.MaxUint16 {
		return fmt.Errorf("metadata key of %d bytes", len(key))
	}
	for _, c := range []byte(key) {
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !ok {
			return fmt.Errorf("metadata key %q: only lower-case letters, digits and -_. are allowed", key)
		}
	}
	return nil
}

func checkValue(key, value string) error {
	if strings.HasSuffix(key, "-bin") {
		return nil
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return fmt.Errorf("metadata %q: only printable ASCII is allowed in a key without -bin", key)
		}
	}
	return nil
}

// fields decodes heads, metadata and statuses. After an error it returns zero values.
type fields struct {
	b   []byte
	err error
}

func (r *fields) next(n int) []byte {
	if r.err != nil || n > len(r.b) {
		if r.err == nil {
			r.err = errTruncated
		}
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *fields) u16() int {
	p := r.next(2)
	if p == nil {
		return 0
	}
	return int(binary.LittleEndian.Uint16(p))
}

func (r *fields) u32() int {
	p := r.next(4)
	if p == nil {
		return 0
	}
	return int(binary.LittleEndian.Uint32(p))
}

func (r *fields) u64() uint64 {
	p := r.next(8)
	if p == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(p)
}

func (r *fields) bytes16() []byte { return r.next(r.u16()) }

func (r *fields) bytes32() []byte { return r.next(r.u32()) }

// metadata decodes metadata; it returns nil if there is none.
func (r *fields) metadata() metadata.MD {
	n := r.u16()
	if n == 0 || r.err != nil {
		return nil
	}
	md := make(metadata.MD, min(n, 16))
	for range n {
		key, value := string(r.bytes16()), string(r.bytes32())
		if r.err == nil {
			r.err = checkKey(key)
		}
		if r.err == nil {
			r.err = checkValue(key, value)
		}
		if r.err != nil {
			return nil
		}
		md[key] = append(md[key], value)
	}
	return md
}
