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

// A handlerDesk calls an HTTP handler in this process.
type handlerDesk struct {
	ctx     context.Context //nolint:containedctx // of all its requests
	handler http.Handler
	term    term
	answer  memory
}

func (d *handlerDesk) enroll(k int) (int, []byte, error) {
	r, err := newRequest(d.ctx, http.MethodPut, path(d.term, k), nil)
	if err != nil {
		return 0, nil, err
	}
	r.Header["Request-Id"] = []string{requestID(k)}
	d.handler.ServeHTTP(d.answer.ready(), r)
	return d.answer.status, d.answer.body, nil
}

// newRequest is a request as a server has it.
func newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err == nil {
		r.Host, r.RequestURI, r.RemoteAddr = "localhost", path, "127.0.0.1:1"
	}
	return r, err
}

// A memory keeps an answer.
type memory struct {
	header http.Header
	status int
	body   []byte
}

// ready forgets the answer before.
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

// SetReadDeadline is what the gateway finds at a connection.
func (m *memory) SetReadDeadline(time.Time) error { return nil }

// A connDesk asks over one connection.
type connDesk struct {
	conn net.Conn
	from *bufio.Reader
	term term
	out  []byte
	in   []byte
}

func newConnDesk(ctx context.Context, addr string, t term) (*connDesk, error) {
	var dial net.Dialer
	conn, err := dial.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &connDesk{conn: conn, from: bufio.NewReader(conn), term: t}, nil
}

func (d *connDesk) enroll(k int) (int, []byte, error) {
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
