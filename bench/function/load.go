package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A load is a number of equal requests over some connections.
type load struct {
	addr, path  string
	body, want  []byte
	connections int
	turn        time.Duration
}

// A caller makes one request.
type caller interface {
	call(ctx context.Context) error
	close() error
}

// through returns a measurement of requests a second over persistent connections.
func (l load) through(open func(context.Context, load) (caller, error)) measurement {
	return func(ctx context.Context) (float64, error) {
		var callers []caller
		defer func() {
			for _, c := range callers {
				_ = c.close() // the connection is not used any more
			}
		}()
		for range l.connections {
			c, err := open(ctx, l)
			if err != nil {
				return 0, err
			}
			callers = append(callers, c)
			if err := c.call(ctx); err != nil { // the first request establishes the connection
				return 0, err
			}
		}
		return l.run(ctx, callers)
	}
}

func (l load) run(ctx context.Context, callers []caller) (float64, error) {
	var all sync.WaitGroup
	counts, errs := make([]int, len(callers)), make([]error, len(callers))
	begin := time.Now()
	for i, c := range callers {
		all.Go(func() {
			for time.Since(begin) < l.turn && errs[i] == nil {
				errs[i] = c.call(ctx)
				counts[i]++
			}
		})
	}
	all.Wait()
	took, total := time.Since(begin), 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / took.Seconds(), errors.Join(errs...)
}

// A lean caller is a client of negligible cost: it writes the same bytes each time and searches for
// the end of the answer. It is used to measure the server alone.
type lean struct {
	conn    net.Conn
	from    *bufio.Reader
	request []byte
	want    []byte
	got     []byte
}

func newLean(ctx context.Context, l load) (caller, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.addr)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", l.path, l.addr, len(l.body))
	return &lean{conn: conn, from: bufio.NewReader(conn), request: append([]byte(head), l.body...), want: l.want}, nil
}

func (c *lean) close() error { return c.conn.Close() }

func (c *lean) call(context.Context) error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	status, size, err := readHead(c.from)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("the answer has the status %d", status)
	}
	if cap(c.got) < size {
		c.got = make([]byte, size)
	}
	if _, err := io.ReadFull(c.from, c.got[:size]); err != nil {
		return err
	}
	return expect(c.got[:size], c.want)
}

func expect(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the answer is %.200q, want %.200q", got, want)
	}
	return nil
}

// readHead reads an answer's head, and returns its status and the size of its body.
func readHead(from *bufio.Reader) (status, size int, err error) {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	const version = "HTTP/1.1 "
	if len(line) < len(version)+3 || !bytes.HasPrefix(line, []byte(version)) {
		return 0, 0, fmt.Errorf("the answer begins with %q", line)
	}
	if status, err = strconv.Atoi(string(line[len(version) : len(version)+3])); err != nil {
		return 0, 0, err
	}
	size, err = readLength(from)
	return status, size, err
}

// readLength reads the headers, one of which must be the length of the body.
func readLength(from *bufio.Reader) (size int, err error) {
	for size = -1; ; {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		const name = "Content-Length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, err
			}
		}
	}
	if size < 0 {
		return 0, errors.New("the answer does not say how long it is")
	}
	return size, nil
}

// A full caller is net/http's client, as programs use it.
type full struct {
	client http.Client
	load   load
}

func newFull(_ context.Context, l load) (caller, error) {
	return &full{http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}, l}, nil
}

func (c *full) close() error {
	c.client.CloseIdleConnections()
	return nil
}

func (c *full) call(ctx context.Context) error {
	got, err := post(ctx, &c.client, "http://"+c.load.addr+c.load.path, "application/json", c.load.body)
	if err != nil {
		return err
	}
	return expect(got, c.load.want)
}
