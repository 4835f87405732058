package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// spill is how large an answer is sent in pieces.
const spill = 32 << 10

// A reply is the answer to a plain request. It implements http.ResponseWriter, and
// sends all of a small answer at once, when the handler is done.
type reply struct {
	to   io.Writer
	head bool // the request was a HEAD
	last bool // the connection ends with it
	// stopping has true where the connection ends with any answer: the server's, and the
	// connection's own.
	stopping [2]*atomic.Bool

	date   string
	header http.Header
	status int
	body   []byte // what was not sent
	out    []byte // room for what is sent
	sent   bool   // the head is
	rest   int64  // of what the sent head promised
	err    error
}

// begin makes it ready for the next request.
func (w *reply) begin(method, date string) {
	clear(w.header)
	w.head, w.last, w.date = method == http.MethodHead, false, date
	w.status, w.body, w.sent, w.rest, w.err = 0, w.body[:0], false, 0, nil
}

// Header implements http.ResponseWriter.
func (w *reply) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *reply) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

// bare says that the answer has no body.
func (w *reply) bare() bool {
	return w.head || w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (w *reply) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.err != nil:
		return 0, w.err
	case w.bare():
		return len(b), nil
	case w.sent:
		return w.send(b)
	case len(w.body)+len(b) > spill:
		if length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil {
			w.sendHead(length, b)
			return w.send(b)
		}
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

// sendHead sends the head of a long answer and what there is of it. next comes then.
func (w *reply) sendHead(length int64, next []byte) {
	if len(w.body) > 0 {
		next = w.body
	}
	w.sent, w.rest = true, length
	w.out = append(w.appendHead(w.out[:0], length, next), w.body...)
	w.rest -= int64(len(w.body))
	_, w.err = w.to.Write(w.out)
}

func (w *reply) send(b []byte) (int, error) {
	if w.err == nil && int64(len(b)) > w.rest {
		w.err = http.ErrContentLength
	}
	if w.err != nil {
		return 0, w.err
	}
	var n int
	n, w.err = w.to.Write(b)
	w.rest -= int64(n)
	return n, w.err
}

// whole answers with a body that is there. It does what the other methods do, without
// a map between.
func (w *reply) whole(status int, contentType string, body []byte) {
	w.status, w.sent = status, true
	w.out = w.appendStatus(w.out[:0])
	w.out = append(append(append(w.out, "Content-Type: "...), contentType...), "\r\n"...)
	w.out = w.appendEnd(w.out, int64(len(body)))
	if w.head {
		body = nil
	}
	if len(body) <= spill {
		w.out = append(w.out, body...)
		body = nil
	}
	if _, w.err = w.to.Write(w.out); w.err == nil && len(body) > 0 {
		_, w.err = w.to.Write(body)
	}
}

// finish sends what was not sent. It returns false if the connection can't go on.
func (w *reply) finish() bool {
	if !w.sent {
		w.WriteHeader(http.StatusOK)
		w.out = append(w.appendHead(w.out[:0], w.lengthOf(), w.body), w.body...)
		_, w.err = w.to.Write(w.out)
	}
	w.shrink()
	return w.err == nil && w.rest == 0 && !w.last
}

// shrink gives large buffers back.
func (w *reply) shrink() {
	if cap(w.body) > keptPlain {
		w.body = nil
	}
	if cap(w.out) > 2*keptPlain {
		w.out = nil
	}
}

// lengthOf is what the head says of a body that was not sent yet, -1 for nothing.
func (w *reply) lengthOf() int64 {
	if !w.bare() {
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

// appendHead writes the head with the handler's headers, but for those that say where
// the answer ends. Like net/http it says of what type a body is of which nothing is said,
// by its start.
func (w *reply) appendHead(b []byte, length int64, start []byte) []byte {
	if w.header["Date"] != nil {
		w.date = ""
	}
	b = w.appendStatus(b)
	for name, values := range w.header {
		if name == "Connection" {
			w.last = w.last || listed(values, "Close")
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

// appendEnd writes the headers that are the gateway's own, and the empty line.
func (w *reply) appendEnd(b []byte, length int64) []byte {
	if length >= 0 {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, length, 10), "\r\n"...)
	}
	if w.date != "" {
		b = append(append(append(b, "Date: "...), w.date...), "\r\n"...)
	}
	if w.last = w.last || w.stopping[0].Load() || w.stopping[1].Load(); w.last {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// A moment is a time as answers have it.
type moment struct {
	at   time.Time
	date string
}

func momentOf(t time.Time) *moment { return &moment{t, t.UTC().Format(http.TimeFormat)} }

// A plainBody is a body that is there already.
type plainBody struct{ bytes.Reader }

// Close implements io.Closer.
func (*plainBody) Close() error { return nil }
