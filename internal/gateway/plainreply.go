package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// bufferedReply is the size from which a response is sent in pieces.
const bufferedReply = 32 << 10

// reply is the response to a plain request. It implements http.ResponseWriter, and sends a small
// response with one write when the handler returns.
type reply struct {
	to         io.Writer
	head       bool // the request was a HEAD
	closeAfter bool // the connection ends with this response
	// stopping says whether the connection ends with this response in any case: the server's flag,
	// and the connection's own.
	stopping [2]*atomic.Bool

	date      string
	header    http.Header
	status    int
	body      []byte // the unsent part
	out       []byte // a buffer for writes
	sent      bool   // the head was sent
	chunks    bool   // the body is sent in chunks
	remaining int64  // unsent bytes of the announced length
	err       error
}

// begin resets the reply for the next request.
func (w *reply) begin(method, date string) {
	clear(w.header)
	w.head, w.closeAfter, w.date = method == http.MethodHead, false, date
	w.status, w.body, w.sent, w.chunks, w.remaining, w.err = 0, w.body[:0], false, false, 0, nil
}

// Header implements http.ResponseWriter.
func (w *reply) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *reply) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

// bodiless reports whether the response has no body.
func (w *reply) bodiless() bool {
	return w.head || w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (w *reply) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.err != nil:
		return 0, w.err
	case w.bodiless():
		return len(b), nil
	case w.sent:
		return w.send(b)
	case len(w.body)+len(b) > bufferedReply:
		if length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil {
			w.sendHead(length, b)
			return w.send(b)
		}
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

// sendHead sends the head of a long response and the buffered part of its body. next is the part
// after that.
func (w *reply) sendHead(length int64, next []byte) {
	if len(w.body) > 0 {
		next = w.body
	}
	w.sent, w.remaining = true, length
	w.out = append(w.appendHead(w.out[:0], length, next), w.body...)
	w.remaining -= int64(len(w.body))
	_, w.err = w.to.Write(w.out)
}

// FlushError sends the buffered bytes. It implements the optional interface of
// http.ResponseController.
func (w *reply) FlushError() error {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.err != nil || w.sent || w.bodiless():
		return w.err
	case w.header["Content-Length"] != nil:
		if length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil {
			w.sendHead(length, nil)
			return w.err
		}
	}
	w.sent, w.chunks = true, true
	w.out = w.appendHead(w.out[:0], chunkedLength, w.body)
	if _, w.err = w.to.Write(w.out); w.err == nil && len(w.body) > 0 {
		_, w.err = w.sendChunk(w.body)
	}
	w.body = w.body[:0]
	return w.err
}

// sendChunk sends a chunk. b must not be empty: an empty chunk would end the body.
func (w *reply) sendChunk(b []byte) (int, error) {
	if w.err != nil || len(b) == 0 {
		return 0, w.err
	}
	w.out = append(strconv.AppendInt(w.out[:0], int64(len(b)), 16), "\r\n"...)
	w.out = append(append(w.out, b...), "\r\n"...)
	if _, w.err = w.to.Write(w.out); w.err != nil {
		return 0, w.err
	}
	return len(b), nil
}

func (w *reply) send(b []byte) (int, error) {
	if w.chunks {
		return w.sendChunk(b)
	}
	if w.err == nil && int64(len(b)) > w.remaining {
		w.err = http.ErrContentLength
	}
	if w.err != nil {
		return 0, w.err
	}
	var n int
	n, w.err = w.to.Write(b)
	w.remaining -= int64(n)
	return n, w.err
}

// writeWhole sends a response with a complete body. Unlike the other methods it needs no map of
// header fields.
func (w *reply) writeWhole(status int, contentType string, body []byte) {
	w.status, w.sent = status, true
	w.out = w.appendStatus(w.out[:0])
	w.out = append(append(append(w.out, "Content-Type: "...), contentType...), "\r\n"...)
	w.out = w.appendEnd(w.out, int64(len(body)))
	if w.head {
		body = nil
	}
	if len(body) <= bufferedReply {
		w.out = append(w.out, body...)
		body = nil
	}
	if _, w.err = w.to.Write(w.out); w.err == nil && len(body) > 0 {
		_, w.err = w.to.Write(body)
	}
}

// finish sends the rest of the response. It returns false if the connection ends.
func (w *reply) finish() bool {
	if !w.sent && w.hasTrailers() && !w.bodiless() {
		w.WriteHeader(http.StatusOK)
		w.out = w.appendTrailers(w.appendChunk(w.appendHead(w.out[:0], chunkedLength, w.body)))
		_, w.err = w.to.Write(w.out)
	} else if !w.sent {
		w.WriteHeader(http.StatusOK)
		w.out = append(w.appendHead(w.out[:0], w.lengthOf(), w.body), w.body...)
		_, w.err = w.to.Write(w.out)
	}
	if w.chunks && w.err == nil {
		_, w.err = io.WriteString(w.to, "0\r\n\r\n")
	}
	w.dropLargeBuffers()
	return w.err == nil && w.remaining == 0 && !w.closeAfter
}

// chunkedLength stands for the length of a response that is sent in chunks, since trailers follow
// it.
const chunkedLength = -2

// hasTrailers reports whether the handler has set trailers.
func (w *reply) hasTrailers() bool {
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// appendChunk appends the body as one chunk, and the last chunk without its end.
func (w *reply) appendChunk(b []byte) []byte {
	if len(w.body) > 0 {
		b = append(strconv.AppendInt(b, int64(len(w.body)), 16), "\r\n"...)
		b = append(append(b, w.body...), "\r\n"...)
	}
	return append(b, "0\r\n"...)
}

// appendTrailers appends the trailers and the empty line.
func (w *reply) appendTrailers(b []byte) []byte {
	for key, values := range w.header {
		name, ok := strings.CutPrefix(key, http.TrailerPrefix)
		if !ok || !isTokenText(name) {
			continue
		}
		for _, value := range values {
			b = append(append(b, name...), ": "...)
			b = append(appendValue(b, value), "\r\n"...)
		}
	}
	return append(b, "\r\n"...)
}

// dropLargeBuffers drops large buffers.
func (w *reply) dropLargeBuffers() {
	if cap(w.body) > keptPlain {
		w.body = nil
	}
	if cap(w.out) > 2*keptPlain {
		w.out = nil
	}
}

// lengthOf returns the Content-Length of an unsent response, -1 for none.
func (w *reply) lengthOf() int64 {
	if !w.bodiless() {
		return int64(len(w.body))
	}
	if length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil && w.status != http.StatusNoContent {
		return length
	}
	return -1
}

func (w *reply) appendStatus(b []byte) []byte {
	if w.status == http.StatusOK {
		return append(b, "HTTP/1.1 200 OK\r\n"...)
	}
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(w.status), 10)
	b = append(b, ' ')
	return append(append(b, http.StatusText(w.status)...), "\r\n"...)
}

// appendHead appends the head with the handler's header fields other than those of framing. Like
// net/http it detects the type of a body for which the handler set none.
func (w *reply) appendHead(b []byte, length int64, start []byte) []byte {
	if w.header["Date"] != nil {
		w.date = ""
	}
	b = w.appendStatus(b)
	for name, values := range w.header {
		if name == "Connection" {
			w.closeAfter = w.closeAfter || listed(values, "Close")
			continue
		}
		if name == "Content-Length" || name == "Transfer-Encoding" || !isTokenText(name) {
			continue
		}
		for _, value := range values {
			b = append(append(b, name...), ": "...)
			b = append(appendValue(b, value), "\r\n"...)
		}
	}
	if len(start) > 0 && w.header["Content-Type"] == nil && w.header["Content-Encoding"] == nil {
		b = append(append(append(b, "Content-Type: "...), http.DetectContentType(start)...), "\r\n"...)
	}
	return w.appendEnd(b, length)
}

// appendEnd appends the gateway's own header fields and the empty line.
func (w *reply) appendEnd(b []byte, length int64) []byte {
	switch {
	case length >= 0:
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, length, 10), "\r\n"...)
	case length == chunkedLength:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if w.date != "" {
		b = append(append(append(b, "Date: "...), w.date...), "\r\n"...)
	}
	if w.closeAfter = w.closeAfter || w.stopping[0].Load() || w.stopping[1].Load(); w.closeAfter {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// moment is a time and its form in responses.
type moment struct {
	at   time.Time
	date string
}

func momentOf(t time.Time) *moment { return &moment{t, t.UTC().Format(http.TimeFormat)} }

// plainBody is a request's body that was read completely.
type plainBody struct{ bytes.Reader }

// Close implements io.Closer.
func (*plainBody) Close() error { return nil }
