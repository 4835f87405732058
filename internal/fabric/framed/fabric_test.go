package framed

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(b)
	return b
}

// eachTransport runs a test over every way to connect two ends.
func eachTransport(t *testing.T, o Options, f func(t *testing.T, client, server *Conn)) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			client, server := connect(t, o)
			f(t, client, server)
		})
	}
}

func open(t testing.TB, c *Conn, method string) *Stream {
	t.Helper()
	s, err := c.Open(t.Context(), method, []byte("head of "+method))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func accept(t testing.TB, c *Conn) *Stream {
	t.Helper()
	s, err := c.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStreamsCarryBytesBothWays(t *testing.T) {
	eachTransport(t, Options{}, func(t *testing.T, client, server *Conn) {
		want := randomBytes(3<<20 + 7)
		var wg sync.WaitGroup
		both := func(s *Stream) {
			wg.Go(func() {
				for rest := want; len(rest) > 0; {
					n := min(1+rand.IntN(300<<10), len(rest))
					if _, err := s.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				if err := s.CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			got, err := io.ReadAll(s)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: read %d bytes, %v; want %d", s.Method(), len(got), err, len(want))
			}
		}
		for _, ends := range [][2]*Conn{{client, server}, {server, client}, {client, server}} {
			wg.Go(func() { both(open(t, ends[0], "x")) })
			s := accept(t, ends[1])
			if s.Method() != "x" || string(s.Header()) != "head of x" {
				t.Errorf("opened as %q %q", s.Method(), s.Header())
			}
			wg.Go(func() { both(s) })
		}
		wg.Wait()
		awaitNothingKept(t, "client", client)
		awaitNothingKept(t, "server", server)
	})
}

// awaitNothingKept waits until all streams of a connection have left it: the reader of the
// connection wakes the last caller of a stream before it takes the stream from the table.
func awaitNothingKept(t *testing.T, name string, c *Conn) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		streams, peers, budget, own := len(c.streams), c.peerStreams.Load(), c.budget, len(c.ownStreams)
		c.mu.Unlock()
		if streams == 0 && peers == 0 && budget == c.o.Budget && own == 0 {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Errorf("%s keeps %d streams, %d of the peer, %d of its own, budget %d", name, streams, peers, own, budget)
			return
		}
	}
}

func TestSlowStreamDisturbsNobody(t *testing.T) {
	eachTransport(t, Options{}, func(t *testing.T, client, server *Conn) {
		go serveEcho(t.Context(), server)
		server.o.Window = firstWindow
		stuck := open(t, server, "stuck")
		accept(t, client) // and never read
		blocked := make(chan error, 1)
		go func() {
			_, err := stuck.Write(make([]byte, 10<<20))
			blocked <- err
		}()
		s := open(t, client, "echo")
		want := randomBytes(2 << 20)
		go s.Write(want)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("echo beside a stuck stream: %v", err)
		}
		select {
		case err := <-blocked:
			t.Errorf("a stream without a reader took 10 MiB: %v", err)
		default:
		}
		stuck.Reset(errors.New("enough"))
		if err := <-blocked; !errors.Is(err, ErrClosed) {
			t.Errorf("blocked write = %v, want ErrClosed", err)
		}
	})
}

func TestBulkDoesNotStarveSmallCalls(t *testing.T) {
	client, server := tlsPair(t, Options{})
	go serveEcho(t.Context(), server)
	bulk, small := open(t, client, "sink"), open(t, client, "echo")
	ctx, stop := context.WithCancel(t.Context())
	flowing := make(chan bool)
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		for piece := make([]byte, 8<<20); ctx.Err() == nil; {
			if _, err := bulk.Write(piece); err != nil {
				t.Error(err)
			}
			once.Do(func() { close(flowing) })
		}
	})
	<-flowing
	b := make([]byte, 64)
	for range 50 {
		if _, err := small.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(small, b); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	wg.Wait()
}

func TestResetCarriesKindAndText(t *testing.T) {
	eachTransport(t, Options{}, func(t *testing.T, client, server *Conn) {
		s := open(t, client, "job")
		s.Write([]byte("before"))
		p := accept(t, server)
		s.Reset(outboard.Errorf(outboard.LeaseLost, "lease x", "expired"))
		got, err := io.ReadAll(p)
		if string(got) != "before" {
			t.Errorf("read %q before the reset", got)
		}
		if outboard.KindOf(err) != outboard.LeaseLost || !strings.Contains(err.Error(), "lease x: expired") {
			t.Errorf("read = %v, want lease_lost with its text", err)
		}
		if _, err := p.Write([]byte("x")); outboard.KindOf(err) != outboard.LeaseLost {
			t.Errorf("write = %v, want lease_lost", err)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("own read = %v, want ErrClosed", err)
		}
	})
}

func TestTooManyStreamsAreRefusedNotTheConnection(t *testing.T) {
	a, b := tcp(t)
	client, server := closeAtEnd(t, Client(a, Options{MaxStreams: 9}), Server(b, Options{MaxStreams: 3}))
	var streams []*Stream
	for range 4 {
		s := open(t, client, "x")
		s.Write([]byte("x"))
		streams = append(streams, s)
	}
	if _, err := streams[3].Read(make([]byte, 1)); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("fourth stream = %v, want exhausted", err)
	}
	accept(t, server).Close()
	if _, err := io.ReadAll(streams[0]); err != nil {
		t.Error(err)
	}
	streams[0].Close()
	go serveEcho(t.Context(), server)
	s := open(t, client, "echo")
	s.Write([]byte("again"))
	if _, err := io.ReadFull(s, make([]byte, 5)); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}

func TestCloseEndsEverythingOnBothSides(t *testing.T) {
	eachTransport(t, Options{}, func(t *testing.T, client, server *Conn) {
		s := open(t, client, "x")
		s.Write([]byte("last words"))
		p := accept(t, server)
		client.Close()
		got, err := io.ReadAll(p)
		if string(got) != "last words" || outboard.KindOf(err) != outboard.Unreachable {
			t.Errorf("peer read %q, %v; want all bytes and unreachable", got, err)
		}
		if _, err := s.Write([]byte("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("own write = %v, want ErrClosed", err)
		}
		if _, err := client.Open(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Open = %v, want ErrClosed", err)
		}
		<-server.Done()
		if _, err := server.Accept(t.Context()); outboard.KindOf(err) != outboard.Unreachable {
			t.Errorf("Accept = %v", err)
		}
	})
}

func TestPeerShowsItsCertificate(t *testing.T) {
	client, server := tlsPair(t, Options{})
	for want, c := range map[string]*Conn{"harbour": client, "dinghy": server} {
		if err := c.Handshake(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.Peer()[0].Subject.CommonName; got != want {
			t.Errorf("peer is %q, want %q", got, want)
		}
	}
}

func TestForeignCertificateIsDenied(t *testing.T) {
	own, _ := certificates(t)
	_, server := certificates(t)
	a, b := tcp(t)
	client, peer := closeAtEnd(t, Client(a, Options{TLS: own}), Server(b, Options{TLS: server}))
	if err := client.Handshake(t.Context()); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("client = %v, want denied", err)
	}
	<-peer.Done()
	if outboard.KindOf(peer.Err()) != outboard.Denied {
		t.Errorf("server = %v, want denied", peer.Err())
	}

	// A client that trusts the server but has a foreign certificate itself: its
	// own handshake is over before the server judges.
	right, _ := certificates(t)
	right.RootCAs = server.RootCAs
	a, b = tcp(t)
	client, _ = closeAtEnd(t, Client(a, Options{TLS: right}), Server(b, Options{TLS: server}))
	<-client.Done()
	if outboard.KindOf(client.Err()) != outboard.Denied {
		t.Errorf("client with a foreign certificate = %v, want denied", client.Err())
	}
}

func TestFailedHandshakes(t *testing.T) {
	right, server := certificates(t)
	bare := right.Clone()
	bare.Certificates = nil
	for name, c := range map[string]struct {
		client func(nc net.Conn)
		want   outboard.Kind
	}{
		"no certificate":   {func(nc net.Conn) { Client(nc, Options{TLS: bare}) }, outboard.Denied},
		"no TLS":           {func(nc net.Conn) { nc.Write([]byte(preface)) }, outboard.Protocol},
		"hangs up":         {func(nc net.Conn) { nc.Close() }, outboard.Unreachable},
		"says nothing":     {func(net.Conn) {}, outboard.Unreachable},
		"older TLS":        {func(nc net.Conn) { go oldClient(nc, right) }, outboard.Denied},
		"right, then gone": {func(nc net.Conn) { Client(nc, Options{TLS: right}).Close() }, outboard.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcp(t)
			defer a.Close()
			c.client(a)
			dead := 2 * time.Minute
			if name == "says nothing" {
				dead = 100 * time.Millisecond
			}
			s := Server(b, Options{TLS: server, DeadAfter: dead})
			<-s.Done()
			s.Close()
			if outboard.KindOf(s.Err()) != c.want {
				t.Errorf("server ended with %v, want %v", s.Err(), c.want)
			}
		})
	}
}

func oldClient(nc net.Conn, t *tls.Config) {
	t = t.Clone()
	t.MinVersion, t.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	_ = tls.Client(nc, t).Handshake()
}

func TestReadFromAndWriteToThroughCopy(t *testing.T) {
	client, server := tlsPair(t, Options{})
	go serveEcho(t.Context(), server)
	s := open(t, client, "echo")
	want := randomBytes(1 << 20)
	go func() {
		_, _ = io.Copy(s, bytes.NewReader(want))
		s.CloseWrite()
	}()
	var got bytes.Buffer
	if _, err := io.Copy(&got, s); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("copied %d bytes, %v", got.Len(), err)
	}
}
