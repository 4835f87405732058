package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

func TestRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"app":  {outboard.Errorf(outboard.NotFound, "", "there is no app"), "HTTP/1.1 404 Not Found"},
		"down": {outboard.Errorf(outboard.Unreachable, "", "it starts"), "HTTP/1.1 503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			go gateway.Refuse(server, c.err)
			if _, err := client.Write([]byte("G")); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(client)
			if !strings.HasPrefix(string(got), c.want) || c.want == "" && len(got) > 0 || err != nil {
				t.Fatalf("got %q (%v), want %q", got, err, c.want)
			}
			if strings.HasPrefix(c.want, "HTTP/") {
				r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(got))), nil)
				if err != nil {
					t.Fatal(err)
				}
				wantProblem(t, read(t, r))
			}
		})
	}
}

// halfPipe is a pipe that can end one direction, as a TCP connection can.
type halfPipe struct{ net.Conn }

func (halfPipe) CloseWrite() error { return nil }

// TestRefusalArrives: a client that is refused may still send for a while: a
// connection that was closed at once would take the answer back.
func TestRefusalArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go gateway.Refuse(halfPipe{server}, outboard.Errorf(outboard.NotFound, "", "there is no app"))
		if _, err := client.Write([]byte("G")); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantProblem(t, read(t, r))
		r.Body.Close()
		if _, err := client.Write(make([]byte, 100_000)); err != nil {
			t.Errorf("the rest of the request: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := client.Write(make([]byte, 1)); err == nil {
			t.Error("the connection stays open")
		}
	})
}

// A client that has not yet sent its request would take a response for a broken connection.
func TestRefusalFollowsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go gateway.Refuse(server, outboard.Errorf(outboard.Unreachable, "", "it starts"))
		if err := client.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes (%v) before the request", n, err)
		}
		if _, err := io.WriteString(client, "G"); err != nil {
			t.Fatal(err)
		}
		if err := client.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503 ") {
			t.Errorf("%q (%v), want the refusal", got, err)
		}
	})
}

func TestServeConn(t *testing.T) {
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		return gateway.Answer{Body: append([]byte("HTTP/1.1 200 OK\r\n\r\n"), c.Body[len(c.Body)-5:]...), Message: true}, nil
	})
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f"), HTTP: true}))
	start(t, g)
	url := "http://" + serve(t, g) + "/shop/x"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 3 { // on one connection
		r, err := client.Post(url, "text/plain", io.MultiReader(strings.NewReader("hello")))
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, r); got.text != "hello" || got.StatusCode != 200 {
			t.Errorf("got %v", got)
		}
	}
}

// TestHugeHead: a head beyond the limit is refused, and the gateway goes on.
func TestHugeHead(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("x"), nil })},
		shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	conn, err := net.Dial("tcp", serve(t, g))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = io.WriteString(conn, "GET /shop/ HTTP/1.1\r\nHost: x\r\nA: "+strings.Repeat("x", 128<<10))
	}()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Fatalf("got %v (%v)", r, err)
	}
	r.Body.Close()
}

// TestGraceful: what was accepted finishes when the gateway stops, and its connection
// ends after it.
func TestGraceful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
			<-finish
			return text("done"), nil
		})
		g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f")}))
		stop := start(t, g)
		client, server := net.Pipe()
		g.ServeConn(server, []byte("GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"))
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		time.Sleep(10 * time.Second)
		select {
		case <-stopped:
			t.Error("it stopped with a request under way")
		default:
		}
		close(finish)
		from := bufio.NewReader(client)
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, r); got.text != "done" {
			t.Errorf("got %v", got)
		}
		if r.Body.Close(); !r.Close {
			t.Error("the connection would go on")
		}
		<-stopped
		late, server := net.Pipe()
		g.ServeConn(server, []byte("GET /shop/ HTTP/1.1\r\n"))
		if _, err := late.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a late connection: %v", err)
		}
	})
}

// TestGrace: what takes longer than the grace is given up.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := invoke(func(ctx context.Context, _ gateway.Call) (gateway.Answer, error) {
			<-ctx.Done()
			return gateway.Answer{}, context.Cause(ctx)
		})
		g := newGateway(t, gateway.Options{Invoker: f, Grace: time.Minute}, shop(gateway.Route{Path: "/", Target: to("f")}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx, func() {}) }()
		_, server := net.Pipe()
		g.ServeConn(server, []byte("GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"))
		synctest.Wait()
		begin := time.Now()
		cancel()
		if err := <-ended; err == nil || time.Since(begin) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// TestOverload sends 10,000 requests to a gateway that takes 8 at a time: each
// accepted one finishes, the others are refused with 429 and Retry-After.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, clients, room = 10_000, 64, 8
		var running, most, done, accepted, refused, next atomic.Int64
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			for n := running.Add(1); ; {
				seen := most.Load()
				if n <= seen || most.CompareAndSwap(seen, n) {
					break
				}
			}
			time.Sleep(time.Millisecond) // so that calls meet
			running.Add(-1)
			done.Add(1)
			return text("done " + string(c.Body)), nil
		})
		g := newGateway(t, gateway.Options{Invoker: f, Calls: room}, shop(gateway.Route{Path: "/", Target: to("f")}))
		stop := start(t, g)
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				client, server := net.Pipe()
				defer client.Close()
				g.ServeConn(server, nil)
				if err := many(client, func() (int64, bool) { n := next.Add(1); return n, n <= requests }, &accepted, &refused); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		stop()
		if accepted.Load()+refused.Load() != requests || accepted.Load() != done.Load() || accepted.Load() == 0 || refused.Load() == 0 {
			t.Errorf("%d accepted, %d refused, %d done of %d", accepted.Load(), refused.Load(), done.Load(), requests)
		}
		if most.Load() != room {
			t.Errorf("%d calls at a time", most.Load())
		}
	})
}

// many makes requests on one connection. A client of net/http would cost more than
// what is tested.
func many(conn net.Conn, next func() (int64, bool), accepted, refused *atomic.Int64) error {
	from := bufio.NewReader(conn)
	for n, ok := next(); ok; n, ok = next() {
		text := fmt.Sprint(n)
		if _, err := fmt.Fprintf(conn, "POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text); err != nil {
			return err
		}
		if err := one(from, text, accepted, refused); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		time.Sleep(time.Duration(n%7) * 100 * time.Microsecond)
	}
	return nil
}

func one(from *bufio.Reader, text string, accepted, refused *atomic.Int64) error {
	head, size := "", 0
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return err
		}
		if line == "\r\n" {
			break
		}
		if n, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			size, _ = strconv.Atoi(strings.TrimSpace(n))
		}
		head += line
	}
	body := make([]byte, size)
	_, err := io.ReadFull(from, body)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(head, "HTTP/1.1 200 ") && string(body) == "done "+text:
		accepted.Add(1)
	case strings.HasPrefix(head, "HTTP/1.1 429 ") && strings.Contains(head, "\r\nRetry-After: 1\r\n"):
		refused.Add(1)
	default:
		return fmt.Errorf("%s%q", head, body)
	}
	return nil
}

// TestConnLimit: a connection too many is told so, and one that ends makes room.
func TestConnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("x"), nil })
		g := newGateway(t, gateway.Options{Invoker: f, Conns: 1}, shop(gateway.Route{Path: "/", Target: to("f")}))
		stop := start(t, g)
		open := func(want int) net.Conn {
			client, server := net.Pipe()
			go g.ServeConn(server, []byte("GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"))
			r, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Body.Close(); r.StatusCode != want {
				t.Errorf("got %d, want %d", r.StatusCode, want)
			}
			return client
		}
		first, second := open(200), open(429)
		// ServeConn does not wait for a client that is refused and has sent nothing yet: the caller has
		// other connections.
		silent, server := net.Pipe()
		g.ServeConn(server, nil)
		if _, err := io.WriteString(silent, "G"); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(silent), nil) //nolint:bodyclose // the connection is its body
		if err != nil || r.StatusCode != 429 {
			t.Errorf("got %v, %v", r, err)
		}
		silent.Close()
		first.Close()
		synctest.Wait()
		third := open(200)
		second.Close()
		third.Close()
		stop()
	})
}

// clientAt is a connection of a client at an address.
type clientAt struct {
	net.Conn
	from net.Addr
}

func (c clientAt) RemoteAddr() net.Addr { return c.from }

// Idle connections of one address leave some to another one.
func TestConnLimitOfAddress(t *testing.T) {
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("x"), nil })
	g := newGateway(t, gateway.Options{Invoker: f, Conns: 4}, shop(gateway.Route{Path: "/", Target: to("f")}))
	defer start(t, g)()
	for _, c := range []struct {
		host byte
		want int
	}{{1, 200}, {1, 200}, {1, 429}, {2, 200}} {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		go g.ServeConn(clientAt{server, &net.TCPAddr{IP: net.IPv4(192, 0, 2, c.host)}}, []byte("GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"))
		r, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != c.want {
			t.Errorf("a client at address %d got %d, want %d", c.host, r.StatusCode, c.want)
		}
	}
}

// TestHalfClosed: a client that ends its sending gets an answer.
func TestHalfClosed(t *testing.T) {
	f := invoke(func(ctx context.Context, _ gateway.Call) (gateway.Answer, error) {
		<-ctx.Done() // net/http takes it for gone
		return gateway.Answer{}, context.Cause(ctx)
	})
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	conn, err := net.Dial("tcp", serve(t, g))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantProblem(t, read(t, r))
	r.Body.Close()
	for r := range g.Follow(t.Context(), gateway.Filter{App: "shop"}) {
		if r.Status != 499 {
			t.Errorf("the log has the status %d", r.Status)
		}
		break
	}
}

// TestAppLimit: an app's own limit leaves room for others.
func TestAppLimit(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		if c.App == "busy" {
			close(begun)
			<-finish
		}
		return text("x"), nil
	})
	routes := []gateway.Route{{Path: "/", Target: to("f")}}
	g := newGateway(t, gateway.Options{Invoker: f}, gateway.App{Name: "busy", Routes: routes, Calls: 1}, gateway.App{Name: "free", Routes: routes})
	ended := make(chan int)
	go func() { ended <- ask(g, get("/busy/")).StatusCode }()
	<-begun
	if got := ask(g, get("/busy/")).StatusCode; got != 429 {
		t.Errorf("the second call of the busy app: %d", got)
	}
	if got := ask(g, get("/free/")).StatusCode; got != 200 {
		t.Errorf("the call of another app: %d", got)
	}
	close(finish)
	if got := <-ended; got != 200 {
		t.Errorf("the first call: %d", got)
	}
}

// TestSlowSender: a client that does not go on with its request is let go.
func TestSlowSender(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		status string
	}{
		"head": {"GET /shop/ HTTP/1.1\r\nHo", "HTTP/1.1 400 Bad Request"},
		"body": {"POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1", "HTTP/1.1 408 Request Timeout"},
		"next": {"GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK"}, // and no other one
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("x"), nil })
				g := newGateway(t, gateway.Options{Invoker: f, ClientTimeout: 10 * time.Second}, shop(gateway.Route{Path: "/", Target: to("f")}))
				stop := start(t, g)
				client, server := net.Pipe()
				g.ServeConn(server, []byte(c.sent))
				begin := time.Now()
				got, err := io.ReadAll(client)
				if err != nil || !strings.HasPrefix(string(got), c.status) {
					t.Errorf("got %q (%v), want %q", got, err, c.status)
				}
				if took := time.Since(begin); took > 3*time.Minute || name != "next" && took > 15*time.Second {
					t.Errorf("it was let go after %v", took)
				}
				stop()
			})
		})
	}
}

// TestSlowReader: a client that does not read its answer is let go.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
			return gateway.Answer{Body: make([]byte, 1<<20), Release: func() { close(released) }}, nil
		})
		g := newGateway(t, gateway.Options{Invoker: f, ClientTimeout: 10 * time.Second}, shop(gateway.Route{Path: "/", Target: to("f")}))
		stop := start(t, g)
		client, server := net.Pipe()
		g.ServeConn(server, []byte("GET /shop/ HTTP/1.1\r\nHost: x\r\n\r\n"))
		begin := time.Now()
		<-released
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("it was let go after %v", took)
		}
		client.Close()
		stop()
	})
}

// TestTricklingReader: a client that reads a little now and then is let go, and the call that it
// holds ends, whether the function sends in parts or the gateway has the whole response.
func TestTricklingReader(t *testing.T) {
	const parts, part = 200, 4 << 10
	head := "HTTP/1.1 200 OK\r\n\r\n"
	for name, f := range map[string]invoke{
		"in parts": func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			_, err := io.WriteString(c.Stream, head)
			for n := 0; n < parts && err == nil; n++ {
				_, err = c.Stream.Write(make([]byte, part))
			}
			return gateway.Answer{Streamed: true, Message: true}, err
		},
		"whole": func(context.Context, gateway.Call) (gateway.Answer, error) {
			return gateway.Answer{Message: true, Body: append([]byte(head), make([]byte, parts*part)...)}, nil
		},
	} {
		for server, request := range map[string]string{"plain": getPlain, "net/http": getOdd} {
			t.Run(name+", "+server, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begin, ended := time.Now(), make(chan error, 1)
					g := newGateway(t, gateway.Options{ClientTimeout: 10 * time.Second, Invoker: invoke(func(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
						a, err := f(ctx, c)
						a.Release = func() { ended <- err }
						return a, err
					})}, gateway.App{Name: "a", Routes: []gateway.Route{{Path: "/", Target: to("f"), HTTP: true, Streams: name == "in parts"}}})
					stop := start(t, g)
					client, conn := net.Pipe()
					g.ServeConn(conn, nil)
					var reading sync.WaitGroup
					reading.Go(func() {
						_, err := io.WriteString(client, request)
						for err == nil {
							_, err = client.Read(make([]byte, 1<<10))
							time.Sleep(time.Second)
						}
					})
					err := <-ended
					if took := time.Since(begin); took > time.Minute {
						t.Errorf("its call was held for %v", took)
					}
					if name == "in parts" && (err == nil || !strings.Contains(err.Error(), "--client-timeout")) {
						t.Errorf("the function is told %v", err)
					}
					client.Close()
					reading.Wait()
					stop()
				})
			})
		}
	}
}

// TestUnreadBody: a client that never sends the body that it announced is let go, though nothing
// reads that body.
func TestUnreadBody(t *testing.T) {
	for name, path := range map[string]string{"no such app": "/b/", "a function that does not read": "/a/"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, gateway.Options{Invoker: inParts("HTTP/1.1 200 OK\r\n\r\n", "done")}, gateway.App{Name: "a", Routes: []gateway.Route{
					{Path: "/", Target: to("f"), HTTP: true, Streams: true},
				}})
				stop := start(t, g)
				client, conn := net.Pipe()
				g.ServeConn(conn, []byte("POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"))
				begin := time.Now()
				_ = client.SetReadDeadline(begin.Add(time.Hour))
				if b, err := io.ReadAll(client); err != nil || time.Since(begin) > time.Minute {
					t.Errorf("%q, %v after %v", b, err, time.Since(begin))
				}
				client.Close()
				stop()
			})
		})
	}
}

// TestCloseClientConns: connections of clients end after the request in progress, whichever
// server has them; a client that begins with HTTP/2 is told to use HTTP/1.1.
func TestCloseClientConns(t *testing.T) {
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("done"), nil })
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f")}))
	start(t, g)
	addr := serve(t, g)
	for name, request := range map[string]string{
		"plain":    "POST /shop/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"net/http": "POST /shop/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		in := bufio.NewReader(conn)
		for range 2 {
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, r); got.StatusCode != 200 || r.Close {
				t.Errorf("%s: got %v", name, got)
			}
		}
		g.CloseClientConns()
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection is not closed: %v", name, err)
		}
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	frames := make([]byte, 26)
	if _, err := io.ReadFull(conn, frames); err != nil || frames[3] != 4 || frames[12] != 7 || frames[25] != 0xd {
		t.Errorf("got %q, %v, want SETTINGS and GOAWAY", frames, err)
	}
}
