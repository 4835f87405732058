package gateway

import (
	"bytes"
	"net"
	"net/http"
	"sync/atomic"
)

// lengthField is how a field Content-Length begins within a head, in lower case.
const lengthField = "\ncontent-length:"

// lengthFields counts the fields Content-Length that a client sends. net/http removes the field of a
// request that has Transfer-Encoding, too, and leaves the connection open. RFC 9112, section 6.1, has
// it closed after the response: a proxy that believed the length reads the bytes that follow in
// another way. The same text in a body, and in pipelined requests, is counted, too: it can only end a
// connection early.
type lengthFields struct {
	matched   int          // bytes of lengthField at the end of what was scanned
	unclaimed atomic.Int64 // fields that belong to no request that was checked
}

// scan counts the fields in bytes that were read. One goroutine at a time reads a connection.
func (l *lengthFields) scan(b []byte) {
	for len(b) > 0 {
		if l.matched == 0 {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				return
			}
			b, l.matched = b[i+1:], 1
			continue
		}
		if lower(b[0]) != lengthField[l.matched] {
			l.matched = 0
			continue
		}
		b = b[1:]
		if l.matched++; l.matched == len(lengthField) {
			l.matched = 0
			l.unclaimed.Add(1)
		}
	}
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// isAmbiguous reports whether a request, whose head was read, may have had both Content-Length and
// Transfer-Encoding. It is called once for each request of the connection.
func (l *lengthFields) isAmbiguous(r *http.Request) bool {
	if r.TransferEncoding != nil {
		return l.unclaimed.Swap(0) > 0
	}
	l.unclaimed.Add(-int64(len(r.Header["Content-Length"])))
	return false
}

// Serve is server.Serve, but ends the connection of a request with both Content-Length and
// Transfer-Encoding after the response. It sets the server's ConnContext and wraps its Handler.
func Serve(server *http.Server, l net.Listener) error {
	handler := server.Handler
	server.ConnContext = withConn
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*scannedConn); ok && c.lengths.isAmbiguous(r) {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
	return server.Serve(scannedListener{l})
}

// scannedListener accepts scannedConns.
type scannedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l scannedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &scannedConn{Conn: conn}, nil
}

// scannedConn counts the fields Content-Length that it reads.
type scannedConn struct {
	net.Conn
	lengths lengthFields
}

// Read implements net.Conn.
func (c *scannedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.lengths.scan(b[:n])
	return n, err
}
