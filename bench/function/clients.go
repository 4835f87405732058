package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// A handlerClient calls an HTTP handler in this process.
type handlerClient struct {
	ctx     context.Context //nolint:containedctx // of all its requests
	handler http.Handler
	term    term
	answer  memory
}

func (d *handlerClient) enroll(k int) (int, []byte, error) {
	r, err := newRequest(d.ctx, http.MethodPut, path(d.term, k), nil)
	if err != nil {
		return 0, nil, err
	}
	r.Header["Request-Id"] = []string{requestID(k)}
	d.handler.ServeHTTP(d.answer.ready(), r)
	return d.answer.status, d.answer.body, nil
}

// newRequest returns a request in the form in which a server receives it.
func newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err == nil {
		r.Host, r.RequestURI, r.RemoteAddr = "localhost", path, "127.0.0.1:1"
	}
	return r, err
}

// A memory is a response writer that records the response.
type memory struct {
	header http.Header
	status int
	body   []byte
}

// ready clears the previous response.
func (m *memory) ready() *memory {
	if m.header == nil {
		m.header = http.Header{}
	}
	clear(m.header)
	m.status, m.body = http.StatusOK, m.body[:0]
	return m
}

// Header implements http.ResponseWriter.
func (m *memory) Header() http.Header { return m.header }

// WriteHeader implements http.ResponseWriter.
func (m *memory) WriteHeader(status int) { m.status = status }

// Write implements http.ResponseWriter.
func (m *memory) Write(b []byte) (int, error) {
	m.body = append(m.body, b...)
	return len(b), nil
}

// SetReadDeadline is the method of a connection that the gateway needs.
func (m *memory) SetReadDeadline(time.Time) error { return nil }

// A connClient sends its requests over one connection.
type connClient struct {
	conn net.Conn
	from *bufio.Reader
	term term
	out  []byte
	in   []byte
}

func newConnClient(ctx context.Context, addr string, t term) (*connClient, error) {
	var dial net.Dialer
	conn, err := dial.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &connClient{conn: conn, from: bufio.NewReader(conn), term: t}, nil
}

func (d *connClient) enroll(k int) (int, []byte, error) {
	d.out = fmt.Appendf(d.out[:0], "PUT %s HTTP/1.1\r\nHost: localhost\r\nRequest-Id: %s\r\nContent-Length: 0\r\n\r\n", path(d.term, k), requestID(k))
	if _, err := d.conn.Write(d.out); err != nil {
		return 0, nil, err
	}
	status, size, err := readHead(d.from)
	if err != nil {
		return 0, nil, err
	}
	if cap(d.in) < size {
		d.in = make([]byte, size)
	}
	_, err = io.ReadFull(d.from, d.in[:size])
	return status, d.in[:size], err
}
