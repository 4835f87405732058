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
// Transfer-Encoding after the response, and answers a request that can't be read with a problem
// document. It sets the server's ConnContext and ConnState and wraps its Handler.
func Serve(server *http.Server, l net.Listener) error {
	handler := server.Handler
	server.ConnContext = withConn
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if c, ok := conn.(*scannedConn); ok && state == http.StateIdle {
			c.unreadable.reading.Store(true)
		}
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*scannedConn); ok {
			c.unreadable.reading.Store(false)
			if c.lengths.isAmbiguous(r) {
				w.Header().Set("Connection", "close")
			}
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
	c := &scannedConn{Conn: conn}
	c.unreadable.reading.Store(true)
	return c, nil
}

// scannedConn counts the fields Content-Length that it reads, and replaces the errors of net/http.
type scannedConn struct {
	net.Conn
	lengths    lengthFields
	unreadable unreadable
}

// Read implements net.Conn.
func (c *scannedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.lengths.scan(b[:n])
	return n, err
}

// Write implements net.Conn.
func (c *scannedConn) Write(b []byte) (int, error) { return c.unreadable.write(b, c.Conn.Write) }
