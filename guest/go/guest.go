// Package guest is what a function written in Go imports. The function is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o app.wasm
//
// and registers its handler in an init function: main never runs.
//
//	func init() { guest.Handle(greet) }
//
//	func greet(request []byte) ([]byte, error) { return append([]byte("hello "), request...), nil }
//
//	func main() {}
//
// Every request begins with the memory as it was after init, so nothing that a
// handler leaves in a variable is seen by the next request. What init drew from
// math/rand is in that memory too: all requests draw the same numbers from it.
// Rand gives numbers that differ.
//
// For the same reason whatever a program does once belongs into init: each request would
// do it again. Much of that does not show: encoding/json learns a type, html/template
// escapes a template, regexp compiles an expression when they are first used. So use them
// there, with the types and templates that the handler will use:
//
//	func init() {
//		guest.Handle(greet)
//		guest.Warm(func() { _, _ = greet([]byte(`{"name": "nobody"}`)) })
//	}
//
// It makes a handler that reads and writes a few fields of JSON five times as fast, and
// one that fills a small page of html/template in ten times.
//
// The request is valid until the handler returns.
package guest

import (
	"errors"
	"math/rand/v2"
)

// A Handler answers one request.
type Handler func(request []byte) ([]byte, error)

var handler Handler

// Handle registers the handler of this function. The last call counts.
func Handle(h Handler) { handler = h }

// Call answers a request as the host would have it done. It is for a function's own
// tests, which run without a host.
func Call(request []byte) ([]byte, error) {
	if handler == nil {
		return nil, errors.New("no handler: call guest.Handle in an init function")
	}
	return handler(request)
}

// Warm runs f now, and again when all init functions have run and the image is about to be
// taken: what it leaves in a sync.Pool, which a collection empties, is there in each request
// then. It is for what a program does once; see above.
func Warm(f func()) {
	f()
	rehearsals = append(rehearsals, f)
}

var rehearsals []func()

// Rand returns a source of numbers whose seed comes from the host, fresh for each
// call of Rand.
func Rand() *rand.Rand { return rand.New(rand.NewPCG(hostRandom(), hostRandom())) }
