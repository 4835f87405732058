package framed

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

// cutter is a connection that can be cut: then it swallows what is written and
// never reads again, as a cable that was pulled.
type cutter struct {
	net.Conn
	once sync.Once
	cut  chan struct{}
	gone chan struct{}
}

func newCutter(nc net.Conn) *cutter {
	return &cutter{Conn: nc, cut: make(chan struct{}), gone: make(chan struct{})}
}

func (c *cutter) Write(p []byte) (int, error) {
	select {
	case <-c.cut:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *cutter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.cut:
		<-c.gone
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *cutter) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

func TestCutLinkEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4 * time.Second
		a, b := net.Pipe()
		ca, cb := newCutter(a), newCutter(b)
		client, server := Client(ca, Options{DeadAfter: limit}), Server(cb, Options{DeadAfter: limit})
		s := open(t, client, "x")
		s.Write([]byte("x"))
		p := accept(t, server)
		time.Sleep(10 * limit) // an idle connection lives
		if client.Err() != nil || server.Err() != nil {
			t.Fatalf("idle connection died: %v, %v", client.Err(), server.Err())
		}
		if client.RTT() < 0 {
			t.Error("negative round trip")
		}
		close(ca.cut)
		close(cb.cut)
		start := time.Now()
		for name, stream := range map[string]*Stream{"client": s, "server": p} {
			_, err := io.ReadAll(stream)
			if outboard.KindOf(err) != outboard.Unreachable {
				t.Errorf("%s: read = %v, want unreachable", name, err)
			}
			if took := time.Since(start); took > limit {
				t.Errorf("%s noticed after %v, want %v", name, took, limit)
			}
		}
		client.Close()
		server.Close()
	})
}

func TestStreamOutOfCreditIsNotDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		client, server := Client(a, Options{}), Server(b, Options{})
		s := open(t, client, "x")
		want := make([]byte, 3*firstWindow)
		wrote := make(chan error)
		go func() {
			_, err := s.Write(want)
			wrote <- err
		}()
		p := accept(t, server)
		time.Sleep(time.Minute)
		if _, err := io.ReadFull(p, want); err != nil {
			t.Error(err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		client.Close()
		server.Close()
	})
}

// dying is a connection that breaks after a number of bytes written.
type dying struct {
	net.Conn
	left atomic.Int64
}

func (d *dying) Write(p []byte) (int, error) {
	if left := d.left.Add(-int64(len(p))); left < 0 {
		n, _ := d.Conn.Write(p[:max(0, int64(len(p))+left)])
		d.Close()
		return n, io.ErrClosedPipe
	}
	return d.Conn.Write(p)
}

// TestDeathAtEveryPoint breaks the connection after each number of bytes, and
// expects every call to return and every goroutine to end.
func TestDeathAtEveryPoint(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, side := range []string{"client", "server"} {
		for n := int64(0); n < 700; n += 3 {
			a, b := net.Pipe()
			da, db := &dying{Conn: a}, &dying{Conn: b}
			da.left.Store(1 << 40)
			db.left.Store(1 << 40)
			if side == "client" {
				da.left.Store(n)
			} else {
				db.left.Store(n)
			}
			exchange(t, Client(da, Options{DeadAfter: time.Second}), Server(db, Options{DeadAfter: time.Second}))
		}
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

// exchange makes calls and streams over a connection that may break at any time.
func exchange(t *testing.T, client, server *Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { serveEcho(context.Background(), server) })
	wg.Go(func() {
		defer client.Close()
		for range 3 {
			s, err := client.Open(t.Context(), "echo", []byte("some header"))
			if err != nil {
				return
			}
			go s.Write(make([]byte, 30))
			if _, err := io.ReadFull(s, make([]byte, 30)); err != nil {
				return
			}
			s.CloseWrite()
			if _, err := io.ReadAll(s); err != nil {
				return
			}
		}
	})
	wg.Wait()
	server.Close()
}

func TestBrokenPeerEndsTheConnectionOnceLogged(t *testing.T) {
	open := appendOpen(nil, 1, "m", nil)
	raw := func(length int, typ byte, stream uint32, payload ...byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(length)|uint32(typ)<<24)
		return append(binary.LittleEndian.AppendUint32(b, stream), payload...)
	}
	join := func(frames ...[]byte) []byte { return append([]byte(preface), bytes.Join(frames, nil)...) }
	for name, wire := range map[string][]byte{
		"another protocol":         []byte("GET / HTTP/1.1\r\n"),
		"unknown type":             join(raw(0, 9, 1)),
		"type zero":                join(raw(0, 0, 0)),
		"absurd length":            join(raw(0xffffff, byte(frameData), 1)),
		"empty data":               join(open, raw(0, byte(frameData), 1)),
		"data without a stream":    join(raw(1, byte(frameData), 0, 1)),
		"ping on a stream":         join(raw(8, byte(framePing), 1, 0, 0, 0, 0, 0, 0, 0, 0)),
		"unknown stream":           join(raw(1, byte(frameData), 7, 1)),
		"unknown stream of ours":   join(raw(0, byte(frameEnd), 2)),
		"same id twice":            join(open, open),
		"id goes back":             join(appendOpen(nil, 5, "m", nil), appendOpen(nil, 3, "m", nil)),
		"our ids":                  join(appendOpen(nil, 2, "m", nil)),
		"method without a name":    join(raw(2, byte(frameOpen), 1, 0, 0)),
		"method past the frame":    join(raw(2, byte(frameOpen), 1, 9, 0)),
		"method not text":          join(raw(3, byte(frameOpen), 1, 1, 0, 0xff)),
		"no credit":                join(open, appendCredit(nil, 1, 0)),
		"credit overflow":          join(open, appendCredit(nil, 1, maxCredit)),
		"credit too large":         join(open, appendCredit(nil, 1, 1<<31)),
		"end twice":                join(open, raw(0, byte(frameEnd), 1), raw(0, byte(frameEnd), 1)),
		"data after the end":       join(open, raw(0, byte(frameEnd), 1), raw(1, byte(frameData), 1, 1)),
		"more than the credit":     join(open, bytes.Repeat(raw(maxData, byte(frameData), 1, make([]byte, maxData)...), 3)),
		"reset text not text":      join(open, raw(3, byte(frameReset), 1, 1, 0, 0xff)),
		"farewell text not text":   join(raw(3, byte(frameGoAway), 0, 1, 0, 0xff)),
		"ping flood, never reads":  join(bytes.Repeat(appendPing(nil, framePing, 1), queueLimit/8)),
		"open flood, never reads":  floodOpens(),
		"short credit is no frame": join(open, raw(3, byte(frameCredit), 1, 1, 2, 3)),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			var log bytes.Buffer
			c := Server(b, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			go a.Write(wire)
			<-c.Done()
			c.Close()
			a.Close()
			if outboard.KindOf(c.Err()) != outboard.Protocol {
				t.Errorf("connection ended with %v, want protocol", c.Err())
			}
			if n := strings.Count(log.String(), "\n"); n != 1 {
				t.Errorf("%d log records, want 1:\n%s", n, log.String())
			}
		})
	}
}

func floodOpens() []byte {
	b := []byte(preface)
	for id := uint32(1); len(b) < 2<<20; id += 2 {
		b = appendOpen(b, id, "m", nil)
	}
	return b
}

func TestHungUpPeerIsUnreachable(t *testing.T) {
	for _, wire := range []string{"", "OB", preface, preface + "\x05\x00"} {
		a, b := net.Pipe()
		c := Server(b, Options{})
		go func() {
			a.Write([]byte(wire))
			a.Close()
		}()
		<-c.Done()
		c.Close()
		if outboard.KindOf(c.Err()) != outboard.Unreachable {
			t.Errorf("after %q: %v, want unreachable", wire, c.Err())
		}
	}
}

// FuzzFrames feeds a connection whatever bytes: it must take them or end, and
// leave nothing behind.
func FuzzFrames(f *testing.F) {
	open := appendOpen(nil, 1, "echo", []byte("h"))
	data := append(header{frameData, 4, 1}.append(nil), "data"...)
	f.Add(bytes.Join([][]byte{open, data, header{frameEnd, 0, 1}.append(nil)}, nil))
	f.Add(bytes.Join([][]byte{open, appendCredit(nil, 1, 1000), appendError(nil, frameReset, 1, outboard.Busy, "busy")}, nil))
	f.Add(bytes.Join([][]byte{appendPing(nil, framePing, 7), appendPing(nil, framePong, 7), appendError(nil, frameGoAway, 0, 0, "bye")}, nil))
	f.Fuzz(func(t *testing.T, wire []byte) {
		a, b := net.Pipe()
		c := Server(b, Options{MaxStreams: 4})
		var wg sync.WaitGroup
		wg.Go(func() { serveEcho(context.Background(), c) })
		wg.Go(func() { _, _ = io.Copy(io.Discard, a) })
		_, _ = a.Write([]byte(preface))
		_, _ = a.Write(wire)
		a.Close()
		<-c.Done()
		c.Close()
		wg.Wait()
	})
}
