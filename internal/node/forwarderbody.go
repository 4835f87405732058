package node

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// maxLeft is how much of a body is read after the response: as much as a route takes by default.
const maxLeft = 16 << 20

// A forwardedBody is the body of a request that a proxy forwards. By net/http's own body a response would
// wait for the rest of the request: the server reads that first, and Close waits for a Read in progress.
type forwardedBody struct {
	io.Reader
	closed atomic.Bool // of the proxy

	mu    sync.Mutex // held by Read
	begun bool
	err   error
}

// forwardBody lets the response of a request pass before the request's body has come. discard must be
// called after the response.
func forwardBody(w http.ResponseWriter, r *http.Request) (_ *http.Request, discard func()) {
	if r.Body == nil || r.Body == http.NoBody || r.ProtoMajor != 1 || http.NewResponseController(w).EnableFullDuplex() != nil {
		return r, func() {}
	}
	b := &forwardedBody{Reader: r.Body}
	r = r.WithContext(r.Context())
	r.Body = b
	return r, func() { b.discard(w) }
}

// Read implements io.Reader.
func (b *forwardedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.Reader.Read(p)
	b.begun, b.err = true, err
	return n, err
}

// Close implements io.Closer. It does not wait for a Read in progress.
func (b *forwardedBody) Close() error {
	b.closed.Store(true)
	return nil
}

// discard reads what the tenant's process has left of the body, so that the connection can be used again.
// net/http's server would do so after the handler, and panic at the next request: with full duplex it
// reads in the background from the body's end on. A client that sends too much or too slowly loses its
// connection.
func (b *forwardedBody) discard(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush() // the client may wait for the response with its body
	b.mu.Lock()
	defer b.mu.Unlock()
	// A client that expects 100 Continue, and got the response instead, sends no body.
	if !b.begun || b.err != nil || w.Header().Get("Connection") == "close" {
		return
	}
	if _, err := io.CopyN(io.Discard, b.Reader, maxLeft); !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a connection
	}
}

// A continuesOnce is a response without the process's 100 Continue, which httputil.ReverseProxy would
// pass on: net/http sends one of its own when the proxy reads the body.
type continuesOnce struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w continuesOnce) WriteHeader(status int) {
	if status != http.StatusContinue {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap returns the response, for http.ResponseController.
func (w continuesOnce) Unwrap() http.ResponseWriter { return w.ResponseWriter }
