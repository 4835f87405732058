package web

import (
	"bytes"
	"net/http"
	"net/url"
	"unsafe"
)

// exchange is the memory of one request and its response. Handle prepares one during init: every
// request begins with the memory in its state after init, so each request has the prepared exchange
// to itself, without an allocation and with few dirty pages.
type exchange struct {
	request  http.Request
	url      url.URL
	content  body
	response response
	taken    bool

	head    [768]byte   // of the request message
	fields  http.Header // of the request
	values  [16]string  // of the fields
	message [1 << 10]byte
	body    [1 << 10]byte // of the response
}

// An exchange fits into a page: an object of that size begins at a page's begin.
const _ = 4096 - unsafe.Sizeof(exchange{})

// usualFields is the usual bound of the number of header fields.
const usualFields = 8

// prepared is an exchange for the next request, unless it is taken. A request only writes to the page
// of the exchange, and not to that of this variable.
var prepared *exchange

func newExchange() *exchange {
	x := &exchange{fields: newHeader()}
	x.request.SetPathValue("", "") // creates the map
	x.response = response{header: newHeader(), sent: x.message[:0], body: x.body[:0]}
	return x
}

// newHeader returns a header with memory for the usual number of fields. A map allocates its memory
// at the first assignment.
func newHeader() http.Header {
	h := make(http.Header, usualFields)
	h[""] = nil
	delete(h, "")
	return h
}

// takeExchange returns the prepared exchange, or a new one if that is taken.
func takeExchange() *exchange {
	x := prepared
	if x == nil || x.taken {
		x = newExchange()
	}
	x.taken = true
	return x
}

// text returns b as a string: a copy in the exchange if it fits.
func (x *exchange) text(b []byte) string {
	if len(b) == 0 || len(b) > len(x.head) {
		return string(b)
	}
	copy(x.head[:], b)
	return unsafe.String(&x.head[0], len(b)) // no other code writes to it
}

// reader returns content as a request's body.
func (x *exchange) reader(content []byte) *body {
	x.content = body{*bytes.NewReader(content)}
	return &x.content
}
