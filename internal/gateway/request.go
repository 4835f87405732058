package gateway

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
)

// hopByHop reports whether a header field concerns one connection and not the message (RFC 9110,
// section 7.6.1), or is set by the gateway itself.
func hopByHop(canonical string) bool {
	switch canonical {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Expect":
		return true
	}
	return false
}

// listed reports whether the Connection header field names another field.
func listed(connection []string, canonical string) bool {
	for _, line := range connection {
		for name := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(name), canonical) {
				return true
			}
		}
	}
	return false
}

// appendHead appends the head of a function's request message without Content-Length and the empty
// line. The target is stripped of the app's name.
func appendHead(b []byte, r *http.Request, app string, span trace.SpanContext) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = appendTarget(b, r)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = appendValue(b, r.Host)
	b = append(b, "\r\nX-Forwarded-Prefix: /"...)
	b = append(b, app...)
	b = append(b, "\r\n"...)
	if span.IsValid() {
		b = append(b, "Traceparent: "...)
		b = appendTraceparent(b, span)
		b = append(b, "\r\n"...)
	}
	return appendTrailerNames(appendHeader(b, r.Header, span.IsValid()), r)
}

func appendHeader(b []byte, header http.Header, traced bool) []byte {
	connection := header["Connection"]
	for name, values := range header {
		if hopByHop(name) || name == "Host" || name == "X-Forwarded-Prefix" || traced && name == "Traceparent" || !isTokenText(name) {
			continue
		}
		if connection != nil && listed(connection, name) {
			continue
		}
		for _, value := range values {
			b = append(b, name...)
			b = append(b, ": "...)
			b = appendValue(b, value)
			b = append(b, "\r\n"...)
		}
	}
	return b
}

func isTokenText(s string) bool {
	for i := range len(s) {
		if !tokenTable[s[i]] {
			return false
		}
	}
	return s != ""
}

// appendTarget appends the request's target as it was received, without its first segment, the
// app's name.
func appendTarget(b []byte, r *http.Request) []byte {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") {
		target = r.URL.RequestURI() // the target included the host
	}
	target = strings.TrimPrefix(target, "/")
	if end := strings.IndexAny(target, "/?"); end >= 0 {
		target = target[end:]
	} else {
		target = ""
	}
	if !strings.HasPrefix(target, "/") {
		b = append(b, '/')
	}
	return appendEscaped(b, target)
}

// appendEscaped escapes the bytes that would end the target, which net/http refuses anyway.
func appendEscaped(b []byte, target string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(target) {
		if c := target[i]; c > ' ' && c != 0x7f {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

// appendValue appends a header field's value. Bytes that would end it become spaces; net/http
// refuses them anyway.
func appendValue(b []byte, value string) []byte {
	start := len(b)
	b = append(b, value...)
	for i := start; i < len(b); i++ {
		if c := b[i]; c == '\r' || c == '\n' || c == 0 {
			b[i] = ' '
		}
	}
	return b
}

// appendLengths appends the lengths of the parts of a message's head, which appendHead has written,
// so that the function need not search for their ends: for the request line and then for each field,
// one byte for the method or name, and two bytes, the higher first, for the target or value. It
// appends nothing if a part is too long for that.
func appendLengths(b, message []byte) []byte {
	from, separator, suffix := len(b), " ", len(" HTTP/1.1")
	for {
		end := bytes.IndexByte(message, '\n')
		if end <= len("\r") {
			return b // the empty line
		}
		line := message[:end-len("\r")]
		name := bytes.IndexByte(line, separator[0])
		value := len(line) - name - len(separator) - suffix
		if name > math.MaxUint8 || value > math.MaxUint16 {
			return b[:from]
		}
		b = append(b, byte(name), byte(value>>8), byte(value))
		message, separator, suffix = message[end+1:], ": ", 0
	}
}

// lengthPlaceholder is replaced by Content-Length once that is known; leading blanks of a value
// have no meaning.
const lengthPlaceholder = "Content-Length:                     \r\n\r\n"

// setLength writes n so that it ends before the line's end, which is at end.
func setLength(b []byte, end, n int) {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], int64(n), 10)
	copy(b[end-len(text):end], text)
}

// bodyError is the error of a body that can't be read.
type bodyError struct {
	status int
	detail string
}

func (e *bodyError) Error() string { return e.detail }

func tooLarge(limit outboard.Bytes) error {
	return &bodyError{http.StatusRequestEntityTooLarge, "the body is larger than " + limit.String() + ", the largest that the route takes: its key `request` in the manifest sets that"}
}

// appendMessage appends the whole message.
func appendMessage(b []byte, r *http.Request, app string, span trace.SpanContext, limit outboard.Bytes, reserve func(int64) error) ([]byte, error) {
	b = appendHead(b, r, app, span)
	if r.ContentLength == 0 && r.Header["Content-Length"] == nil {
		return append(b, "\r\n"...), nil // a request without a body has no Content-Length
	}
	b = append(b, lengthPlaceholder...)
	head := len(b)
	b, err := appendBody(b, r, limit, reserve)
	setLength(b, head-len("\r\n\r\n"), len(b)-head)
	return b, err
}

// appendBody reads a request's body. It calls reserve before it allocates memory for more of it.
func appendBody(b []byte, r *http.Request, limit outboard.Bytes, reserve func(int64) error) ([]byte, error) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return b, nil
	}
	if r.ContentLength > 0 && outboard.Bytes(r.ContentLength) > limit {
		return b, tooLarge(limit)
	}
	return readBody(b, r.Body, r.ContentLength, limit, reserve)
}

// growth bounds the memory that is allocated for an announced body before it arrives.
const growth = 64 << 10

func readBody(b []byte, from io.Reader, announced int64, limit outboard.Bytes, reserve func(int64) error) ([]byte, error) {
	start := len(b)
	for {
		if len(b) == cap(b) {
			bigger := grow(b, announced-int64(len(b)-start))
			if err := reserve(int64(cap(bigger) - cap(b))); err != nil {
				return b, err
			}
			b = bigger
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case outboard.Bytes(len(b)-start) > limit:
			return b, tooLarge(limit)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, wrongBody(err)
		}
	}
}

func grow(b []byte, more int64) []byte {
	bigger := make([]byte, len(b), len(b)+max(len(b), int(min(max(more+1, 512), growth))))
	copy(bigger, b)
	return bigger
}

func wrongBody(err error) error {
	var slow interface{ Timeout() bool }
	if errors.As(err, &slow) && slow.Timeout() {
		return &bodyError{http.StatusRequestTimeout, "the body came too slowly"}
	}
	return &bodyError{http.StatusBadRequest, "the body did not come whole: " + err.Error()}
}
