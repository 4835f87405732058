package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

func TestLimits(t *testing.T) {
	client, server := pair(t, false, Options{MaxMessage: 1000}, Options{Handler: &unaryEcho{}, MaxMessage: 5000})
	long := head("Echo")
	long.Metadata = metadata.MD{"long": {strings.Repeat("x", 64<<10)}}
	many := head("Echo")
	many.Metadata = metadata.MD{"many": make([]string, 2000)}
	upper := head("Echo")
	upper.Metadata = metadata.MD{"Upper": {"x"}}
	control := head("Echo")
	control.Metadata = metadata.MD{"key": {"line\n"}}
	for name, c := range map[string]struct {
		c    *Conn
		h    *call.Head
		size int
		want codes.Code
	}{
		"request too long":   {client, head("Echo"), 5001, codes.ResourceExhausted},
		"response too long":  {client, head("Echo"), 1001, codes.ResourceExhausted},
		"fits":               {client, head("Echo"), 1000, codes.OK},
		"head too long":      {client, long, 1, codes.ResourceExhausted},
		"2000 values":        {client, many, 1, codes.OK},
		"key in upper case":  {client, upper, 1, codes.Internal},
		"value not printing": {client, control, 1, codes.Internal},
		"nobody serves":      {server, head("Echo"), 1, codes.Unimplemented},
		"not a method":       {client, &call.Head{Method: "Echo"}, 1, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := c.c.Unary(t.Context(), c.h, &call.Message{Data: make([]byte, c.size)})
			if status.Code(err) != c.want {
				t.Errorf("unary: %v, want %v", err, c.want)
			}
			s, err := c.c.Open(t.Context(), c.h)
			if err == nil {
				_ = s.Send(&call.Message{Data: make([]byte, c.size)})
				_ = s.CloseSend()
				for err == nil {
					_, err = s.Recv()
				}
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if status.Code(err) != c.want {
				t.Errorf("stream: %v, want %v", err, c.want)
			}
		})
	}
	if client.Err() != nil {
		t.Errorf("connection: %v", client.Err())
	}
	closed := make(chan struct{})
	go func() {
		client.Close()
		close(closed)
	}()
	server.Close()
	<-closed
	if n := server.peerCalls.Load(); n != 0 {
		t.Errorf("%d calls are still counted", n)
	}
}

func TestStatusDetails(t *testing.T) {
	want, err := status.New(codes.NotFound, "no such thing").WithDetails(&errdetails.ErrorInfo{Reason: "lost", Domain: "sea"})
	if err != nil {
		t.Fatal(err)
	}
	huge, err := status.New(codes.NotFound, "long").WithDetails(&errdetails.ErrorInfo{Reason: strings.Repeat("x", 100<<10)})
	if err != nil {
		t.Fatal(err)
	}
	h := serverFunc(func(s call.ServerStream) error {
		switch s.Head().Name() {
		case "Details":
			return want.Err()
		case "Huge":
			return huge.Err()
		case "Context":
			return context.DeadlineExceeded
		case "Long":
			return errors.New(strings.Repeat("é", 100<<10))
		case "LongMessage":
			return status.Error(codes.NotFound, strings.Repeat("x", 100<<10))
		case "Trailer":
			s.SetTrailer(metadata.MD{"k": {strings.Repeat("x", 100<<10)}})
			return nil
		case "LateTrailer":
			s.SetTrailer(metadata.MD{"k": {strings.Repeat("x", 100<<10)}})
			return status.Error(codes.NotFound, "no such thing")
		}
		return errors.New("plain")
	})
	client, _ := pair(t, false, Options{}, Options{Handler: h})
	for name, c := range map[string]struct {
		code    codes.Code
		details int
	}{
		"Details": {codes.NotFound, 1}, "Huge": {codes.NotFound, 0}, "Context": {codes.DeadlineExceeded, 0},
		"Long": {codes.Unknown, 0}, "LongMessage": {codes.NotFound, 0}, "Trailer": {codes.ResourceExhausted, 0}, "LateTrailer": {codes.NotFound, 0}, "Plain": {codes.Unknown, 0},
	} {
		_, _, err := client.Unary(t.Context(), head(name), &call.Message{})
		if s := status.Convert(err); s.Code() != c.code || len(s.Details()) != c.details {
			t.Errorf("%s: %.200v with %d details", name, err, len(s.Details()))
		} else if strings.HasPrefix(name, "Long") && len(s.Message()) < 1<<10 {
			t.Errorf("%s: %d bytes are left of the message", name, len(s.Message()))
		}
	}
}

type serverFunc func(call.ServerStream) error

func (f serverFunc) Serve(s call.ServerStream) error { return f(s) }

// TestDeadline checks both sides, and that the time left arrives.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan time.Duration, 1)
		h := serverFunc(func(s call.ServerStream) error {
			left <- time.Until(s.Head().Deadline)
			if s.Head().Streaming {
				_, err := s.Recv()
				left <- 0
				return err
			}
			<-s.Context().Done()
			left <- 0
			return s.Context().Err()
		})
		a, b := net.Pipe()
		client := New(framed.Client(a, framed.Options{}), Options{})
		server := New(framed.Server(b, framed.Options{}), Options{Handler: h})
		for _, streaming := range []bool{false, true} {
			h := head("Wait")
			h.Streaming = streaming
			h.Deadline = time.Now().Add(3 * time.Second)
			began := time.Now()
			err := func() error {
				if !streaming {
					_, _, err := client.Unary(t.Context(), h, &call.Message{})
					return err
				}
				s, err := client.Open(t.Context(), h)
				if err == nil {
					_, err = s.Recv()
				}
				return err
			}()
			if status.Code(err) != codes.DeadlineExceeded || time.Since(began) != 3*time.Second {
				t.Errorf("streaming %t: %v after %v", streaming, err, time.Since(began))
			}
			if d := <-left; d != 3*time.Second {
				t.Errorf("streaming %t: %v left at the callee", streaming, d)
			}
			<-left // the handler saw it
		}
		go client.Close()
		server.Close()
		client.Close()
	})
}

// TestSlowUnaryHandler has handlers that wait for each other, though the reader
// serves the first of them itself.
func TestSlowUnaryHandler(t *testing.T) {
	h := &meeting{need: 5, all: make(chan struct{})}
	client, _ := pair(t, true, Options{}, Options{Handler: h})
	var calls sync.WaitGroup
	for range h.need {
		calls.Go(func() {
			if _, _, err := client.Unary(t.Context(), head("Meet"), &call.Message{Data: []byte("x")}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// meeting answers when enough calls are there.
type meeting struct {
	echo
	mu   sync.Mutex
	here int
	need int
	all  chan struct{}
}

func (m *meeting) ServeUnary(ctx context.Context, _ *call.Head, r *call.Message) (*call.Message, call.End, error) {
	m.mu.Lock()
	if m.here++; m.here == m.need {
		close(m.all)
	}
	m.mu.Unlock()
	select {
	case <-m.all:
		return r, call.End{}, nil
	case <-ctx.Done():
		return nil, call.End{}, ctx.Err()
	}
}

// TestCallBack has a unary handler call its caller over the same connection.
func TestCallBack(t *testing.T) {
	h := &callBack{ready: make(chan struct{})}
	client, server := pair(t, true, Options{Handler: &unaryEcho{}}, Options{Handler: h})
	h.to = server
	close(h.ready)
	m, _, err := client.Unary(t.Context(), head("Back"), &call.Message{Data: []byte("x")})
	if err != nil || string(m.Data) != "x" {
		t.Error(m, err)
	}
}

type callBack struct {
	echo
	ready chan struct{}
	to    *Conn
}

func (b *callBack) ServeUnary(ctx context.Context, _ *call.Head, r *call.Message) (*call.Message, call.End, error) {
	<-b.ready
	return b.to.Unary(ctx, head("Echo"), r)
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &echo{began: make(chan string), ended: make(chan string, 1)}
		a, b := net.Pipe()
		client := New(framed.Client(a, framed.Options{}), Options{})
		server := New(framed.Server(b, framed.Options{}), Options{Handler: e})
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() {
			_, _, err := client.Unary(ctx, head("Wait"), &call.Message{})
			waits <- err
		}()
		<-e.began
		drained := make(chan error, 1)
		go func() { drained <- server.Drain(t.Context()) }()
		<-client.Draining()
		if _, _, err := client.Unary(t.Context(), head("Echo"), &call.Message{}); !errors.Is(err, errDraining) {
			t.Errorf("unary: %v", err)
		}
		if _, err := client.Open(t.Context(), head("Echo")); !errors.Is(err, errDraining) {
			t.Errorf("open: %v", err)
		}
		synctest.Wait()
		select {
		case err := <-drained:
			t.Errorf("drained while a call runs: %v", err)
		default:
		}
		cancel()
		if err := <-waits; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		go client.Close()
		server.Close()
		client.Close()
	})
}

// TestForgottenDeadline has a caller whose time is over and who says nothing: the
// callee ends the call by its own clock.
func TestForgottenDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := make(chan error, 1)
		h := serverFunc(func(s call.ServerStream) error {
			_, err := s.Recv()
			result <- err
			return err
		})
		a, b := net.Pipe()
		server := New(framed.Server(b, framed.Options{}), Options{Handler: h})
		go func() { _, _ = io.Copy(io.Discard, a) }()
		now := time.Now()
		opening, err := appendHead(nil, &call.Head{Method: "/a/B", Streaming: true, Deadline: now.Add(time.Second)}, now, false)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = a.Write(append([]byte(greeting), openFrame(1, opening)...))
		if err := <-result; status.Code(err) != codes.DeadlineExceeded || time.Since(now) != time.Second {
			t.Errorf("%v after %v", err, time.Since(now))
		}
		a.Close()
		server.Close()
	})
}

// TestCloseEndsCalls checks the status of both sides' calls.
func TestCloseEndsCalls(t *testing.T) {
	for _, byServer := range []bool{false, true} {
		e := &echo{began: make(chan string), ended: make(chan string, 2)}
		client, server := pair(t, true, Options{}, Options{Handler: e})
		result := make(chan error, 2)
		go func() {
			_, _, err := client.Unary(t.Context(), head("Wait"), &call.Message{})
			result <- err
		}()
		<-e.began
		go func() {
			s, err := client.Open(t.Context(), head("Wait"))
			if err == nil {
				_ = s.CloseSend()
				_, err = s.Recv()
			}
			result <- err
		}()
		<-e.began
		if byServer {
			server.Close()
		} else {
			client.Close()
		}
		for range 2 {
			if err := <-result; status.Code(err) != codes.Unavailable {
				t.Errorf("by server %t: %v", byServer, err)
			}
			<-e.ended
		}
		if _, _, err := client.Unary(t.Context(), head("Echo"), &call.Message{}); status.Code(err) != codes.Unavailable {
			t.Errorf("after the end: %v", err)
		}
	}
}

// TestWho checks where the tenant comes from.
func TestWho(t *testing.T) {
	h := serverFunc(func(s call.ServerStream) error {
		s.SetTrailer(metadata.MD{"who": {s.Head().Tenant, s.Head().Peer}})
		return status.Error(codes.Aborted, "")
	})
	for _, c := range []struct {
		client, server bool
		want           string
	}{{false, false, "t p"}, {true, false, "t p"}, {false, true, "t p"}, {true, true, "asked me"}} {
		client, _ := pair(t, false, Options{Trusted: c.client}, Options{Handler: h, Tenant: "t", Peer: "p", Trusted: c.server})
		asked := head("Who")
		asked.Tenant, asked.Peer = "asked", "me"
		_, end, _ := client.Unary(t.Context(), asked, &call.Message{})
		if got := strings.Join(end.Trailer["who"], " "); got != c.want {
			t.Errorf("client trusts %t, server %t: %q, want %q", c.client, c.server, got, c.want)
		}
	}
}

// TestServe runs both ends of TCP with TLS.
func TestServe(t *testing.T) {
	clientTLS, serverTLS := certificates(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	refuse := false
	go func() {
		served <- Serve(ctx, l, serverTLS, Options{Handler: &echo{}, Accept: func(c *framed.Conn, o *Options) error {
			if refuse {
				return errors.New("not you")
			}
			o.Tenant = c.Peer()[0].Subject.CommonName
			return nil
		}})
	}()
	c, err := Dial(t.Context(), l.Addr().String(), clientTLS, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Unary(t.Context(), head("Echo"), &call.Message{}); err != nil {
		t.Error(err)
	}
	c.Close()
	refuse = true
	if c, err = Dial(t.Context(), l.Addr().String(), clientTLS, Options{}); err == nil {
		if _, _, err := c.Unary(t.Context(), head("Echo"), &call.Message{}); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		c.Close()
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
