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
	status int // 0 until WriteHeader
	sent   bytes.Buffer
	length string // the Content-Length of the handler
	typed  bool   // the handler has set Content-Type or Content-Encoding
	body   []byte
	head   bool // the request's method is HEAD
}

func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 4)
	}
	return w.header
}

func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	w.sent.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n")
	w.typed = w.header["Content-Type"] != nil || w.header["Content-Encoding"] != nil
	w.length = w.header.Get("Content-Length")
	_ = w.header.WriteSubset(&w.sent, ours) // a buffer returns no error
}

// ours are the fields of message framing, which the handler can't set.
var ours = map[string]bool{"Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Trailer": true}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodied(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

func (w *response) WriteString(s string) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodied(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, s...)
	return len(s), nil
}

func bodied(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// message returns the response in the host's format, in the arena if there is one.
func (w *response) message() []byte {
	w.WriteHeader(http.StatusOK)
	if !w.typed && len(w.body) > 0 {
		w.sent.WriteString("Content-Type: " + http.DetectContentType(w.body) + "\r\n")
	}
	if length := w.bodyLength(); length != "" {
		w.sent.WriteString("Content-Length: " + length + "\r\n")
	}
	w.sent.WriteString("\r\n")
	if w.head {
		w.body = nil
	}
	return join(w.sent.Bytes(), w.body)
}

// bodyLength returns the Content-Length, "" for none.
func (w *response) bodyLength() string {
	switch {
	case !bodied(w.status):
		return ""
	case w.head && len(w.body) == 0:
		return w.length // a response to HEAD has the length without the body
	}
	return strconv.Itoa(len(w.body))
}

func join(head, body []byte) []byte {
	all := guest.Alloc(len(head) + len(body))
	copy(all[copy(all, head):], body)
	return all
}
