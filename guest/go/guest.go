// Package guest implements functions in Go: handlers, and access to the app's resources. A function
// is built with
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
// Every request begins with the memory in its state after init, so a request never sees values that
// an earlier request left in variables. The state of math/rand is part of that memory too: all
// requests draw the same numbers from it. Rand returns different numbers.
//
// For the same reason lazy initialisation belongs in init: otherwise each request would repeat it.
// Much of it is implicit: encoding/json analyses a type, html/template escapes a template, regexp
// compiles an expression when they are first used. So use them there, with the types and templates
// that the handler will use:
//
//	func init() {
//		guest.Handle(greet)
//		guest.Warm(func() { _, _ = greet([]byte(`{"name": "nobody"}`)) })
//	}
//
// A handler that reads and writes a few fields of JSON becomes five times as fast, one that renders
// a small page of html/template ten times.
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

// Handle registers the handler of this function. A later call replaces it.
func Handle(h Handler) { handler = h }

// Call calls the handler as the host does. It is for a function's own tests, which run
// without a host.
func Call(request []byte) ([]byte, error) {
	if handler == nil {
		return nil, errors.New("no handler: call guest.Handle in an init function")
	}
	return collect(handler, request)
}

// Warm runs f now, and again when all init functions have run, just before the image is taken: the
// garbage collection in between empties each sync.Pool, so the second run makes its contents
// available to each request. It is for lazy initialisation; see the package's documentation.
func Warm(f func()) {
	f()
	rehearsals = append(rehearsals, f)
}

var rehearsals []func()

// Rand returns a source of random numbers. Each call of Rand gets a new seed from the host.
func Rand() *rand.Rand { return rand.New(rand.NewPCG(hostRandom(), hostRandom())) }
