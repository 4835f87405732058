package gateway

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Refuse answers the first request of a connection with an error and its Status, and closes the
// connection. Clients take a response that precedes its request for a broken connection, so Refuse
// waits for the request's first byte, for up to lingerTimeout.
func Refuse(conn net.Conn, err error) {
	_ = conn.SetDeadline(time.Now().Add(lingerTimeout))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		_ = conn.Close() // There is no request.
		return
	}
	refuseRequest(conn, err)
}

// refuseRequest answers a request that has begun with an error and its Status, and closes the
// connection.
func refuseRequest(conn net.Conn, err error) {
	_ = conn.SetDeadline(time.Now().Add(lingerTimeout))
	if _, err := conn.Write(lastResponse(NewProblem(err))); err == nil {
		linger(conn)
	}
	_ = conn.Close()
}

// Closing a connection with unread data would reset it and lose the response, so up to lingerBytes
// from a refused client are read, for up to lingerTimeout.
const (
	lingerTimeout = time.Second
	lingerBytes   = 256 << 10
)

func linger(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, conn, lingerBytes)
}

// http2Preface is the first line of a client that speaks HTTP/2 with prior knowledge (RFC 9113,
// section 3.4).
const http2Preface = "PRI * HTTP/2.0\r\n"

// goAway are two frames of HTTP/2 (RFC 9113): empty SETTINGS, and GOAWAY with the error
// HTTP_1_1_REQUIRED.
const goAway = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x0d"

// RefuseHTTP2 tells a client that begins with HTTP/2 to use HTTP/1.1. It reports whether r, which
// net/http has read, is the preface of such a client.
func RefuseHTTP2(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != "PRI" || r.RequestURI != "*" || r.Proto != "HTTP/2.0" {
		return false
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false // no connection of a client
	}
	_ = conn.SetDeadline(time.Now().Add(lingerTimeout))
	if _, err := conn.Write([]byte(goAway)); err == nil {
		_, _ = io.CopyN(io.Discard, conn, lingerBytes) // until the client closes, as it has to
	}
	_ = conn.Close()
	return true
}

// lastResponse returns a problem as the last response of a connection.
func lastResponse(p Problem) []byte {
	body := p.body()
	head := "HTTP/1.1 " + strconv.Itoa(p.Status) + " " + p.Title + "\r\nContent-Type: application/problem+json\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\nConnection: close\r\n"
	if p.retryable() {
		head += "Retry-After: " + retryAfter + "\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}
