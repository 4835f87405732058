package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/outboard-run/outboard"
)

// streamAbove is the size from which the function itself reads a request's body, at its own pace.
// The gateway reads a smaller body before the call, so that a slow client occupies no instance.
const streamAbove = 32 << 10

// stream is the part of a request and of its response that is transferred while the function runs.
// It implements io.ReadWriter. One goroutine uses it.
type stream struct {
	x       *exchange
	reading bool // Read returns the request's body
	asked   bool // Read was called: a client that waits for 100 Continue was told to send the body

	body     io.Reader // of the request, if reading
	received int64
	readErr  error // of the client's body; not io.EOF

	head    []byte // of the response, while it is incomplete
	started bool   // the response's head was sent
	length  int64  // Content-Length of the response, or -1
	sent    int64  // bytes of the body
	err     error  // of the response
}

// streamsBody reports whether the function reads the request's body itself.
func (x *exchange) streamsBody() bool {
	n := x.r.ContentLength
	return x.h.Streams && (n < 0 || n > streamAbove) && x.r.Body != nil && x.r.Body != http.NoBody
}

// openStream opens the call's stream. If the function reads the body through it, the body follows
// call.Body.
func (x *exchange) openStream(call *Call) error {
	x.stream = stream{x: x, head: x.stream.head[:0], length: -1}
	call.Stream = &x.stream
	if !x.streamsBody() {
		return nil
	}
	if _, buffered := x.r.Body.(*plainBody); buffered {
		return nil
	}
	if n := x.r.ContentLength; n > 0 && outboard.Bytes(n) > x.h.maxBody {
		return tooLarge(x.h.maxBody)
	}
	x.stream.reading, x.stream.body = true, x.pace(x.r.Body)
	_ = http.NewResponseController(x.w).EnableFullDuplex() // HTTP/2 and recorders need no permission
	x.input = x.input[:0]
	if x.h.HTTP {
		x.input = appendStreamHead(x.input, x)
	}
	call.Body = x.input
	return nil
}

// appendStreamHead appends the head of a request message whose body follows in the stream, decoded.
func appendStreamHead(b []byte, x *exchange) []byte {
	b = appendHead(b, x.r, x.h.state.name, x.span)
	if n := x.r.ContentLength; n >= 0 {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, n, 10)
	} else {
		b = append(b, "Transfer-Encoding: chunked"...)
	}
	return append(b, "\r\n\r\n"...)
}

// Read reads the request's body. It fails if the client sends too slowly or too much; the error
// becomes the response unless that has begun.
func (s *stream) Read(b []byte) (int, error) {
	if !s.reading {
		return 0, io.EOF
	}
	if s.readErr != nil {
		return 0, s.readErr
	}
	s.asked = true
	x := s.x
	n, err := s.body.Read(b)
	s.received += int64(n)
	switch {
	case outboard.Bytes(s.received) > x.h.maxBody:
		s.readErr = tooLarge(x.h.maxBody)
		return 0, s.readErr
	case errors.Is(err, io.EOF):
		s.reading = false
		if s.readErr = checkTrailers(x.r); s.readErr != nil {
			return 0, s.readErr
		}
	case err != nil:
		s.readErr = wrongBody(err)
		err = s.readErr
	}
	return n, err
}

// discard reads what the function has left of the body. net/http's server would do so after the
// handler, and panic at its next read of the connection if it came to the body's end: with
// EnableFullDuplex it reads in the background from there on. A client that sends too much or too
// slowly loses its connection.
func (s *stream) discard() {
	switch {
	case !s.reading || s.x.r.ProtoMajor != 1:
		return
	case !s.asked && s.x.r.Header.Get("Expect") != "":
		return // the client has not been told to send the body, and net/http closes the connection
	case s.readErr != nil:
		lastRequest(s.x.r) // the rest of the body is not the next request
		return
	}
	_ = http.NewResponseController(s.x.w).Flush()
	if _, err := io.Copy(io.Discard, s); err != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a connection
	}
}

// Write sends a part of the response: of a response message if the function returns HTTP messages.
func (s *stream) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	size := len(b)
	if !s.started {
		if b, s.err = s.sendHead(b); s.err != nil || !s.started {
			return size, s.err
		}
	}
	s.err = s.sendBody(b)
	return size, s.err
}

// sendHead sends the head once it is complete, and returns the part of b after it.
func (s *stream) sendHead(b []byte) (body []byte, err error) {
	x := s.x
	if !x.h.HTTP {
		s.started = true
		x.w.Header()["Content-Type"] = []string{typeOf(&Answer{Body: b})}
		x.w.WriteHeader(http.StatusOK)
		x.response.status = http.StatusOK
		return b, nil
	}
	s.head = append(s.head, b...)
	if !bytes.Contains(s.head[:min(len(s.head), maxResponseHead)], []byte("\r\n\r\n")) && len(s.head) < maxResponseHead {
		return nil, nil // the head is not complete
	}
	if err := x.response.parseHead(s.head); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, x.op(), "%w", err)
	}
	if x.response.chunked {
		return nil, outboard.Errorf(outboard.Protocol, x.op(), "the response is sent in parts and has a Transfer-Encoding: leave it out, the gateway frames the parts")
	}
	s.started, s.length = true, x.response.length
	x.response.copyHeader(x.w.Header())
	if s.length >= 0 && x.response.status != http.StatusNoContent {
		x.w.Header()["Content-Length"] = []string{strconv.FormatInt(s.length, 10)}
	}
	x.w.WriteHeader(x.response.status)
	return x.response.body, nil
}

// sendBody sends a part of the body.
func (s *stream) sendBody(b []byte) error {
	x := s.x
	if bodiless(x.r.Method, x.response.status) {
		return nil
	}
	s.sent += int64(len(b))
	if s.length >= 0 && s.sent > s.length {
		return fmt.Errorf("the response says that its body has %d bytes, and it has more", s.length)
	}
	if len(b) > 0 {
		if _, err := x.w.Write(b); err != nil {
			return fmt.Errorf("the client takes no more of the response: %w", err)
		}
	}
	if err := http.NewResponseController(x.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("the client takes no more of the response: %w", err)
	}
	return nil
}

// finish completes a response that was sent in parts. It returns the status for logs and metrics,
// the error of an incomplete response, and whether the connection must be cut: the client has the
// head already, and could not recognise an incomplete response otherwise.
func (s *stream) finish(err error) (status int, failure error, cut bool) {
	x := s.x
	switch {
	case err != nil:
	case s.err != nil:
		err = s.err
	case s.length >= 0 && s.sent < s.length && !bodiless(x.r.Method, x.response.status):
		err = outboard.Errorf(outboard.Protocol, x.op(), "the response says that its body has %d bytes, and it has %d", s.length, s.sent)
	}
	return x.response.status, err, err != nil
}
