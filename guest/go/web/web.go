// Package web serves an ordinary http.Handler as a function of an app.
//
//	func init() { web.Handle(http.HandlerFunc(hello)) }
//
//	func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello", r.PathValue("name")) }
//
//	func main() {}
//
// It is separate from package guest since net/http makes a module of 1.8 MB one of more than 5 MB.
//
// The package has no server: Hijack and 1xx responses are not supported. The host passes a small
// request as one message; a body of more than 32 KiB, or of unknown length, is read while the
// handler reads it, and trailers follow it. A response is sent when the handler returns, or in
// parts from its first Flush or its first 32 KiB on; a response that announces trailers is sent as
// a whole.
//
// A handler that uses encoding/json, html/template and the like should use them once in init, with
// the types and templates of its requests: see package guest. Warm does so with a made-up request.
package web

import (
	"errors"
	"net/http"
	"strconv"

	guest "github.com/outboard-run/outboard/guest/go"
)

// Handle registers the handler of this function; nil means http.DefaultServeMux. If the request is
// not an HTTP message (it is of another function, or of `outboard invoke`), the handler gets it as
// the body of POST /, and the caller gets the response's body, or an error for a status of 400 or
// more.
func Handle(h http.Handler) {
	if h == nil {
		h = http.DefaultServeMux
	}
	registered = h
	guest.Warm(func() { rehearse(http.HandlerFunc(ordinary), "POST /{id}", "/17", "{}") })
	prepared = newExchange()
	guest.Handle(func(message []byte) ([]byte, error) { return answer(h, message) })
}

// registered is the handler that Handle registered.
var registered http.Handler

func answer(h http.Handler, message []byte) ([]byte, error) {
	match, matched := guest.Meta("http.route")
	if !matched {
		if is, _ := guest.Meta("http"); is != "1" {
			return answerPlain(h, message)
		}
	}
	x := takeExchange()
	var parts lengths
	if matched {
		parts = setMatch(&x.request, match)
	} else {
		setPath(&x.request)
	}
	r, err := readRequest(message, parts, x)
	if err != nil {
		return nil, err
	}
	w := &x.response
	w.head, w.streams = r.Method == http.MethodHead, r.Method != http.MethodHead
	h.ServeHTTP(w, r)
	return w.message(), nil
}

func answerPlain(h http.Handler, message []byte) ([]byte, error) {
	x := takeExchange()
	r, err := readRequest(append([]byte("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"), message...), "", x)
	if err != nil {
		return nil, err
	}
	w := &x.response
	h.ServeHTTP(w, r)
	if w.status >= http.StatusBadRequest {
		return nil, errors.New(strconv.Itoa(w.status) + " " + http.StatusText(w.status) + ": " + string(w.body))
	}
	return w.body, nil
}
