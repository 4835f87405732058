package web

import (
	"bytes"
	"net/http"
	"strconv"

	guest "github.com/outboard-run/outboard/guest/go"
)

// response implements http.ResponseWriter. The header is fixed by the first WriteHeader or
// Write, as in net/http.
type response struct {
	header http.Header
	status int    // 0 until WriteHeader
	sent   []byte // the head, then the message
	length string // the Content-Length set by the handler
	typed  bool   // the handler has set Content-Type or Content-Encoding
	body   []byte
	head   bool // the request's method is HEAD
	// streams says that the client accepts the response in parts.
	streams  bool
	trailers []string // the names that the header Trailer announces
	begun    bool     // the head and a part of the body were sent
	err      error    // of sending
}

// partSize is the size above which a response is sent in parts.
const partSize = 32 << 10

func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 4)
	}
	return w.header
}

// WriteHeader panics for a status without three digits, as net/http does.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("invalid WriteHeader code " + strconv.Itoa(status))
	}
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	w.writeStatus()
	if len(w.header) == 0 {
		return
	}
	w.typed = w.header["Content-Type"] != nil || w.header["Content-Encoding"] != nil
	w.length = w.header.Get("Content-Length")
	excluded := framingFields
	if w.header["Trailer"] != nil {
		w.streams = false // the gateway frames a response in parts and can't add trailers
		w.trailers = trailerNames(w.header)
		excluded = withNames(framingFields, w.trailers)
	}
	head := bytes.NewBuffer(w.sent)
	_ = w.header.WriteSubset(head, excluded) // a buffer returns no error
	w.sent = head.Bytes()
}

// writeStatus begins the head with the status line. Most responses have the status 200.
func (w *response) writeStatus() {
	if w.status == http.StatusOK {
		w.sent = append(w.sent, "HTTP/1.1 200 OK\r\n"...)
		return
	}
	w.sent = append(append(strconv.AppendInt(append(w.sent, "HTTP/1.1 "...), int64(w.status), 10), ' '), http.StatusText(w.status)...)
	w.sent = append(w.sent, "\r\n"...)
}

// framingFields are the fields of message framing, which the handler can't set.
var framingFields = map[string]bool{"Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Trailer": true}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodied(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, b...)
	return len(b), w.sendLarge()
}

func (w *response) WriteString(s string) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodied(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, s...)
	return len(s), w.sendLarge()
}

// sendLarge sends the buffered response if it is large.
func (w *response) sendLarge() error {
	if !w.streams || len(w.body) < partSize {
		return w.err
	}
	return w.FlushError()
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends the buffered response; it waits for a client that reads slowly. It implements
// the optional interface of http.ResponseController.
func (w *response) FlushError() error {
	if !w.streams || w.err != nil {
		return w.err
	}
	w.WriteHeader(http.StatusOK)
	part := w.body
	if !w.begun {
		w.begun = true
		part = append(w.headOf(w.length), w.body...)
	} else if len(part) == 0 {
		return nil
	}
	w.err = guest.Send(part)
	w.body = w.body[:0]
	return w.err
}

// headOf completes the head of the message.
func (w *response) headOf(length string) []byte {
	if !w.typed && len(w.body) > 0 {
		w.writeField("Content-Type: ", detectType(w.body))
	}
	if length != "" {
		w.writeField("Content-Length: ", length)
	}
	w.sent = append(w.sent, "\r\n"...)
	return w.sent
}

// writeField appends a field to the head; name ends with a colon and a blank.
func (w *response) writeField(name, value string) {
	w.sent = append(append(append(w.sent, name...), value...), "\r\n"...)
}

func bodied(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// message returns the response in the host's format. A large response lies in the arena if there is
// one.
func (w *response) message() []byte {
	if w.begun {
		return w.body // the rest
	}
	w.WriteHeader(http.StatusOK)
	if trailer := w.trailer(); len(trailer) > 0 && bodied(w.status) && !w.head {
		w.sent = append(w.sent, "Transfer-Encoding: chunked\r\n"...)
		return join(w.headOf(""), chunked(w.body, trailer))
	}
	head := w.headOf(w.bodyLength())
	if w.head {
		w.body = nil
	}
	if cap(head)-len(head) >= len(w.body) {
		return append(head, w.body...)
	}
	return join(head, w.body)
}

// bodyLength returns the Content-Length, "" for none.
func (w *response) bodyLength() string {
	switch {
	case !bodied(w.status):
		return ""
	case w.head && len(w.body) == 0:
		return w.length // a response to HEAD has the length of the absent body
	}
	return strconv.Itoa(len(w.body))
}

func join(head, body []byte) []byte {
	all := guest.Alloc(len(head) + len(body))
	copy(all[copy(all, head):], body)
	return all
}
