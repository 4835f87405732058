package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// plainConn serves the plain requests of a connection. The first other request and all later ones
// are left to net/http. So plain requests need no goroutine besides the connection's, no timer and
// next to no memory, and rare requests behave as with net/http.
type plainConn struct {
	conn       *clientConn
	server     *server
	ctx        context.Context //nolint:containedctx // of the connection's calls
	cancelCall context.CancelFunc

	served     bool // at least one request
	blankBytes int  // how many bytes of blank lines before the next request are skipped
	buffer     []byte
	used       int // bytes of the buffer that were served
	head       plainHead
	app        *tableApp
	body       plainBody
	template   *http.Request // the fields that all requests of the connection share
	request    http.Request
	reply      reply
}

// keptPlain is the largest buffer that a connection keeps between requests.
const keptPlain = 16 << 10

// restTimeout is how long the rest of a request may take to arrive before the connection is passed
// to net/http, whose timeout is longer.
const restTimeout = 2 * time.Second

// next is the next event of a connection.
type next int

const (
	plainRequest next = iota
	otherRequest      // or a part of a request; net/http reads it
	noRequest
	moreBytes
)

// servePlain serves a connection, and returns before it ends.
func (s *server) servePlain(c *clientConn) {
	p := &plainConn{conn: c, server: s, buffer: c.prefix}
	p.ctx, p.cancelCall = context.WithCancel(context.Background())
	p.template = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: c.RemoteAddr().String()}).WithContext(p.ctx)
	p.reply.to, p.reply.header, p.reply.stopping = c, make(http.Header), [2]*atomic.Bool{&s.stopping, &c.stopping}
	c.mu.Lock()
	c.prefix, c.plain = nil, p
	c.mu.Unlock()
	if !s.countPlain() {
		p.cancelCall()
		_ = c.Close()
		return
	}
	go p.serve()
}

func (p *plainConn) serve() {
	defer p.server.plain.Done()
	defer p.cancelCall()
	for {
		switch p.next() {
		case plainRequest:
			if p.answer() {
				continue
			}
			p.lingerAfterLast()
		case otherRequest:
			p.passToNetHTTP()
			return
		case noRequest, moreBytes:
		}
		_ = p.conn.Close()
		return
	}
}

// next reads until there is a request, or the end.
func (p *plainConn) next() next {
	need := 0 // 0: the head is incomplete
	for {
		p.skipBlankLines()
		if need == 0 && len(p.pending()) > 0 {
			n, odd := p.parse()
			if odd {
				return otherRequest
			}
			need = n
		}
		if need > 0 && len(p.pending()) >= need {
			p.buildRequest(need)
			return plainRequest
		}
		if outcome := p.readMore(need); outcome != moreBytes {
			return outcome
		}
	}
}

// skipBlankLines skips blank lines that old clients send after the body of a POST, as many as
// net/http skips.
func (p *plainConn) skipBlankLines() {
	for p.blankBytes > 0 && p.used < len(p.buffer) {
		if c := p.buffer[p.used]; c != '\r' && c != '\n' {
			p.blankBytes = 0
			return
		}
		p.used++
		p.blankBytes--
	}
}

// pending returns the bytes that were read and not served.
func (p *plainConn) pending() []byte { return p.buffer[p.used:] }

// parse parses the head of the pending request and returns the size of the request in bytes, 0 if
// the head is incomplete.
func (p *plainConn) parse() (size int, odd bool) {
	b := p.pending()
	end := bytes.Index(b[:min(len(b), maxPlainHead)], []byte("\r\n\r\n"))
	if end < 0 {
		return 0, len(b) >= maxPlainHead
	}
	if !p.head.parse(string(b[:end+2])) {
		return 0, true
	}
	// Other handlers may retain requests.
	if p.app = p.server.gateway.table.Load().apps[AppOf(p.head.url.Path)]; p.app == nil || !p.server.gateway.servesHost(p.head.host) {
		return 0, true
	}
	return end + 4 + max(p.head.length, 0), false
}

// buildRequest builds the request from the first size pending bytes.
func (p *plainConn) buildRequest(size int) {
	h, r := &p.head, &p.request
	*r = *p.template
	r.Method, r.URL, r.Header, r.Host, r.RequestURI = h.method, &h.url, h.header, h.host, h.target
	r.Body = http.NoBody
	if h.length > 0 {
		p.body.Reset(p.buffer[p.used+size-h.length : p.used+size])
		r.Body, r.ContentLength = &p.body, int64(h.length)
	}
	applyForwardedClient(r)
	p.used += size
	p.served, p.blankBytes = true, 0
	if h.method == http.MethodPost {
		p.blankBytes = minRequest
	}
}

// readMore reads more bytes.
func (p *plainConn) readMore(need int) next {
	if !p.conn.beforeRead(len(p.pending()) == 0) {
		return noRequest
	}
	p.reserve(need)
	n, err := p.conn.Conn.Read(p.buffer[len(p.buffer):cap(p.buffer)])
	p.buffer = p.buffer[:len(p.buffer)+n]
	switch {
	case n > 0, err == nil:
		return moreBytes
	case len(p.pending()) == 0, p.served && len(p.pending()) < minRequest && errors.Is(err, io.EOF):
		return noRequest
	}
	return otherRequest
}

// reserve ensures buffer space for the next read.
func (p *plainConn) reserve(need int) {
	pending := p.pending()
	if cap(p.buffer) > keptPlain && need <= keptPlain && len(pending) < keptPlain {
		p.buffer = nil
	}
	want := max(need, len(pending)+minRead)
	if cap(p.buffer) < want {
		p.buffer = make([]byte, 0, max(want, minPlain))
	}
	p.buffer, p.used = p.buffer[:copy(p.buffer[:cap(p.buffer)], pending)], 0
}

// minRequest is how many bytes of a later request net/http needs to answer it at all.
const minRequest = 4

const (
	minPlain = 4 << 10 // a buffer
	minRead  = 1 << 10
)

// answer serves the request. It returns false if the connection ends with its response.
func (p *plainConn) answer() (goOn bool) {
	defer func() {
		if r := recover(); r != nil {
			goOn = false
			p.recovered(r)
		}
	}()
	p.conn.beginCall()
	p.reply.begin(p.head.method, p.server.watch.moment().date)
	p.app.routes.ServeHTTP(&p.reply, &p.request)
	heard, gone := p.conn.endCall()
	p.buffer = append(p.buffer, heard...)
	return p.reply.finish() && !gone
}

func (p *plainConn) recovered(r any) {
	p.conn.endCall()
	if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		p.server.gateway.log.Error("a request panicked", "error", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// lastLinger is how long data from a client is read after the last response: closing the connection
// with unread data would reset it and lose the response.
const lastLinger = 500 * time.Millisecond

func (p *plainConn) lingerAfterLast() {
	if p.reply.closeAfter && p.reply.err == nil && p.conn.Conn.SetReadDeadline(time.Now().Add(lastLinger)) == nil {
		linger(p.conn.Conn)
	}
}

// passToNetHTTP passes the connection to net/http, with the unserved bytes.
func (p *plainConn) passToNetHTTP() {
	c := p.conn
	c.mu.Lock()
	c.prefix, c.plain, c.phase = bytes.Clone(p.pending()), nil, inCall
	_ = c.read.set(time.Time{}, c.Conn.SetReadDeadline) // a closed connection is noticed later
	c.mu.Unlock()
	if bytes.HasPrefix(c.prefix, []byte(http2Preface)) && !p.served {
		_, _ = c.Write([]byte(goAway)) // a client that is gone needs no response
		linger(c)
		_ = c.Close()
		return
	}
	c.unreadable.reading.Store(true)
	select {
	case p.server.incoming <- c:
	case <-p.server.closed:
		Refuse(c, outboard.Errorf(outboard.SessionLost, "", "this node stops: call again"))
	}
}

// phase is the state of a plain connection.
type phase int

const (
	inCall        phase = iota // or the connection is new
	awaitsRequest              // no byte of it was read
	awaitsRest
)

// beforeRead sets the deadline of a read. It returns false if no read is due: a connection that
// stops reads no new request.
func (c *clientConn) beforeRead(first bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first && c.stopping.Load() {
		return false
	}
	now, patience := awaitsRest, restTimeout
	if first {
		now, patience = awaitsRequest, idleTimeout
		if c.plain != nil && !c.plain.served {
			patience = firstTimeout
		}
	}
	if now != awaitsRest || c.phase != awaitsRest { // the rest of a request has one deadline
		_ = c.read.set(c.watch.clock().Add(patience), c.Conn.SetReadDeadline) // the read reports an error
	}
	c.phase = now
	return true
}

// stop ends a connection after the request in progress. The state hook of net/http's server ends a
// connection that net/http has.
func (c *clientConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping.Store(true)
	if c.plain != nil && c.phase == awaitsRequest {
		_ = c.read.set(past(), c.Conn.SetReadDeadline) // a closed connection has none
	}
}

// abort cancels a plain connection's call and closes the connection.
func (c *clientConn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plain != nil {
		c.plain.cancelCall()
		_ = c.Conn.Close() // the grace period is over
	}
}

// countPlain counts a connection, unless the server is stopping.
func (s *server) countPlain() bool {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	s.plain.Add(1)
	return true
}

// stopPlain ends plain connections after the requests in progress. The channel is closed when all
// have ended.
func (s *server) stopPlain() (ended chan struct{}) {
	s.watch.mu.Lock()
	s.stopping.Store(true)
	for c := range s.watch.conns {
		c.stop()
	}
	s.watch.mu.Unlock()
	ended = make(chan struct{})
	go func() { // the goroutine ends with the connections, for which stop waits
		s.plain.Wait()
		close(ended)
	}()
	return ended
}
