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

// A plainConn serves the plain requests of a connection. The first odd one and all that
// comes after it are left to net/http. So what is served here needs no goroutine beside
// the connection's, no timer, and next to no memory of its own, and whatever is rare is
// done as net/http does it.
type plainConn struct {
	conn   *handedConn
	server *server
	ctx    context.Context //nolint:containedctx // of the connection's calls
	giveUp context.CancelFunc

	served  bool // a request
	lines   int  // bytes of lines before the next request that are left out
	buffer  []byte
	used    int // bytes of the buffer before those that were not served
	head    plainHead
	app     *tableApp
	body    plainBody
	blank   *http.Request // has what all requests of the connection have
	request http.Request
	reply   reply
}

// keptPlain is how large a connection's buffer may stay.
const keptPlain = 16 << 10

// hurry is how long the rest of a request may take to come before net/http, which is
// more patient, waits for it.
const hurry = 2 * time.Second

// What a connection brings next.
type next int

const (
	wholeRequest next = iota
	oddRequest        // or a part of one
	noRequest
	somethingMore
)

// servePlain serves a connection, and returns before that ends.
func (s *server) servePlain(c *handedConn) {
	p := &plainConn{conn: c, server: s, buffer: c.first}
	p.ctx, p.giveUp = context.WithCancel(context.Background())
	p.blank = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: c.RemoteAddr().String()}).WithContext(p.ctx)
	p.reply.to, p.reply.header, p.reply.stopping = c, make(http.Header), [2]*atomic.Bool{&s.stopping, &c.stopping}
	c.mu.Lock()
	c.first, c.plain = nil, p
	c.mu.Unlock()
	if !s.enterPlain() {
		p.giveUp()
		_ = c.Close()
		return
	}
	go p.serve()
}

func (p *plainConn) serve() {
	defer p.server.plain.Done()
	defer p.giveUp()
	for {
		switch p.next() {
		case wholeRequest:
			if p.answer() {
				continue
			}
			p.partWays()
		case oddRequest:
			p.handOn()
			return
		case noRequest, somethingMore:
		}
		_ = p.conn.Close()
		return
	}
}

// next reads until there is a request.
func (p *plainConn) next() next {
	need := 0 // 0: its head is not whole yet
	for {
		p.skip()
		if need == 0 && len(p.pending()) > 0 {
			n, odd := p.parse()
			if odd {
				return oddRequest
			}
			need = n
		}
		if need > 0 && len(p.pending()) >= need {
			p.take(need)
			return wholeRequest
		}
		if what := p.read(need); what != somethingMore {
			return what
		}
	}
}

// skip leaves out empty lines that old clients send after the body of a POST, as many
// as net/http does.
func (p *plainConn) skip() {
	for p.lines > 0 && p.used < len(p.buffer) {
		if c := p.buffer[p.used]; c != '\r' && c != '\n' {
			p.lines = 0
			return
		}
		p.used++
		p.lines--
	}
}

// pending are the bytes that were read and not served.
func (p *plainConn) pending() []byte { return p.buffer[p.used:] }

// parse reads the head of the request that is pending, and returns how many bytes the
// request has, 0 if the head is not whole.
func (p *plainConn) parse() (size int, odd bool) {
	b := p.pending()
	end := bytes.Index(b[:min(len(b), maxPlainHead)], []byte("\r\n\r\n"))
	if end < 0 {
		return 0, len(b) >= maxPlainHead
	}
	if !p.head.parse(string(b[:end+2])) {
		return 0, true
	}
	// What serves requests elsewhere may keep them.
	if p.app = p.server.gateway.table.Load().apps[AppOf(p.head.url.Path)]; p.app == nil || !p.server.gateway.servesHost(p.head.host) {
		return 0, true
	}
	return end + 4 + max(p.head.length, 0), false
}

// take makes the request of its first size bytes.
func (p *plainConn) take(size int) {
	h, r := &p.head, &p.request
	*r = *p.blank
	r.Method, r.URL, r.Header, r.Host, r.RequestURI = h.method, &h.url, h.header, h.host, h.target
	r.Body = http.NoBody
	if h.length > 0 {
		p.body.Reset(p.buffer[p.used+size-h.length : p.used+size])
		r.Body, r.ContentLength = &p.body, int64(h.length)
	}
	takeForwardedClient(r)
	p.used += size
	p.served, p.lines = true, 0
	if h.method == http.MethodPost {
		p.lines = leastLine
	}
}

// read waits for more.
func (p *plainConn) read(need int) next {
	if !p.conn.waits(len(p.pending()) == 0) {
		return noRequest
	}
	p.room(need)
	n, err := p.conn.Conn.Read(p.buffer[len(p.buffer):cap(p.buffer)])
	p.buffer = p.buffer[:len(p.buffer)+n]
	switch {
	case n > 0, err == nil:
		return somethingMore
	case len(p.pending()) == 0, p.served && len(p.pending()) < leastLine && errors.Is(err, io.EOF):
		return noRequest
	}
	return oddRequest
}

// room makes room for what is read next.
func (p *plainConn) room(need int) {
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

// leastLine is what net/http wants of a later request before it answers at all.
const leastLine = 4

const (
	minPlain = 4 << 10 // a buffer
	minRead  = 1 << 10
)

// answer serves the request. It returns false if the connection ends with it.
func (p *plainConn) answer() (goOn bool) {
	defer func() {
		if r := recover(); r != nil {
			goOn = false
			p.recovered(r)
		}
	}()
	p.conn.begin()
	p.reply.begin(p.head.method, p.server.watch.moment().date)
	p.app.routes.ServeHTTP(&p.reply, &p.request)
	heard, gone := p.conn.end()
	p.buffer = append(p.buffer, heard...)
	return p.reply.finish() && !gone
}

func (p *plainConn) recovered(r any) {
	p.conn.end()
	if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		p.server.gateway.log.Error("a request panicked", "error", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// parting is how long a client that was told that the connection ends may go on to send:
// to close it with something unread would take the answer back.
const parting = 500 * time.Millisecond

func (p *plainConn) partWays() {
	if p.reply.last && p.reply.err == nil && p.conn.Conn.SetReadDeadline(time.Now().Add(parting)) == nil {
		linger(p.conn.Conn)
	}
}

// handOn gives the connection to net/http, with what was not served of it.
func (p *plainConn) handOn() {
	c := p.conn
	c.mu.Lock()
	c.first, c.plain, c.phase = bytes.Clone(p.pending()), nil, calls
	_ = c.read.set(time.Time{}, c.Conn.SetReadDeadline) // a connection that is closed is found so later
	c.mu.Unlock()
	if bytes.HasPrefix(c.first, []byte(http2Preface)) && !p.served {
		_, _ = c.Write([]byte(goAway)) // a client that is gone needs no answer
		linger(c)
		_ = c.Close()
		return
	}
	select {
	case p.server.incoming <- c:
	case <-p.server.closed:
		Refuse(c, outboard.Errorf(outboard.SessionLost, "", "this node stops: call again"))
	}
}

// A phase is what a plain connection does.
type phase int

const (
	calls         phase = iota // or was not looked at yet
	waitsForFirst              // there is nothing of a request
	waitsForMore
)

// waits is called before a read, and says whether one is wanted: a connection that stops
// waits for no new request.
func (c *handedConn) waits(first bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first && c.stopping.Load() {
		return false
	}
	now, patience := waitsForMore, hurry
	if first {
		now, patience = waitsForFirst, idleTimeout
		if c.plain != nil && !c.plain.served {
			patience = firstTimeout
		}
	}
	if now != waitsForMore || c.phase != waitsForMore { // the rest has one deadline for all
		_ = c.read.set(c.watch.clock().Add(patience), c.Conn.SetReadDeadline) // the read finds out what is wrong
	}
	c.phase = now
	return true
}

// stop ends a connection after the request in progress. One that net/http has is ended by its
// server's state hook.
func (c *handedConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping.Store(true)
	if c.plain != nil && c.phase == waitsForFirst {
		_ = c.read.set(past(), c.Conn.SetReadDeadline) // if it is closed, the better
	}
}

// giveUp ends a plain connection's call.
func (c *handedConn) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plain != nil {
		c.plain.giveUp()
		_ = c.Conn.Close() // it had its time
	}
}

// enterPlain counts a connection, unless the server stops.
func (s *server) enterPlain() bool {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	s.plain.Add(1)
	return true
}

// stopPlain lets plain connections finish what they began, and returns what is closed
// when all did.
func (s *server) stopPlain() (ended chan struct{}) {
	s.watch.mu.Lock()
	s.stopping.Store(true)
	for c := range s.watch.conns {
		c.stop()
	}
	s.watch.mu.Unlock()
	ended = make(chan struct{})
	go func() { // it ends with the connections, for which stop waits
		s.plain.Wait()
		close(ended)
	}()
	return ended
}
