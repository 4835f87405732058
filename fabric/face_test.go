package fabric

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// direct is a connection to a server in this process without names.
func direct(t *testing.T, s *scripted, opts ...Option) (*ClientConn, *Server) {
	t.Helper()
	return directAs(t, nil, s, opts...)
}

// directAs is direct to a server with that identity.
func directAs(t *testing.T, p *peer.Peer, s *scripted, opts ...Option) (*ClientConn, *Server) {
	t.Helper()
	server := NewServer(opts...)
	s.register(server)
	c := dialServer(server, p, opts...)
	t.Cleanup(func() { _ = c.Close(); server.Stop() })
	return c, server
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// TestUnsharedValues changes messages after they were handed over, on both sides.
func TestUnsharedValues(t *testing.T) {
	kept := &testgrpc.SimpleResponse{Payload: &testgrpc.Payload{Body: []byte("answer")}}
	var seen *testgrpc.SimpleRequest
	for name, p := range map[string]pairing{"in process": {dialLocal}, "in process, framed": {dialOpaque}} {
		s := &scripted{
			unary: func(_ context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				seen = in
				return kept, nil
			},
			duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				out := &testgrpc.StreamingOutputCallResponse{Payload: &testgrpc.Payload{Body: []byte("answer")}}
				for range 2 {
					in, err := ss.Recv()
					if err != nil {
						return err
					}
					in.Payload.Body[0] = '#'
					if err := ss.Send(out); err != nil {
						return err
					}
					out.Payload.Body[0] = '#'
				}
				return nil
			},
		}
		t.Run(name, func(t *testing.T) {
			c := p.dial(t, s.register, sides{})
			in := &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: []byte("question")}}
			out, err := client(c).UnaryCall(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			in.Payload.Body[0], out.Payload.Body[0] = '#', '#'
			if got := string(seen.Payload.Body) + string(kept.Payload.Body); got != "questionanswer" {
				t.Errorf("got %q: the sides share memory", got)
			}
			unsharedStream(t, c)
		})
	}
}

func unsharedStream(t *testing.T, c grpc.ClientConnInterface) {
	t.Helper()
	s, err := client(c).FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in := &testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("question")}}
	for _, want := range []string{"answer", "#nswer"} {
		if err := s.Send(in); err != nil {
			t.Fatal(err)
		}
		out, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(in.Payload.Body) + " " + string(out.Payload.Body); got != "question "+want {
			t.Errorf("got %q: the sides share memory", got)
		}
	}
}

// TestHandlerIgnoresItsContext leaves a handler that does not heed that.
func TestHandlerIgnoresItsContext(t *testing.T) {
	for name, p := range pairings() {
		t.Run(name, func(t *testing.T) {
			began, let := make(chan struct{}), make(chan struct{})
			s := &scripted{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				close(began)
				<-let
				return new(testgrpc.SimpleResponse), nil
			}}
			c := p.dial(t, s.register, sides{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-began
				cancel()
			}()
			_, err := client(c).UnaryCall(ctx, new(testgrpc.SimpleRequest))
			wantCode(t, err, codes.Canceled)
			close(let)
		})
	}
}

// TestCancellationReaches looks at a handler's context when the caller leaves
// and when the handler has returned.
func TestCancellationReaches(t *testing.T) {
	for name, p := range pairings() {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}, 1), make(chan error, 1)
			last := make(chan context.Context, 1)
			s := &scripted{
				unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
					began <- struct{}{}
					<-ctx.Done()
					ended <- ctx.Err()
					return nil, ctx.Err()
				},
				input: func(ss testgrpc.TestService_StreamingInputCallServer) error {
					last <- ss.Context()
					return ss.SendAndClose(new(testgrpc.StreamingInputCallResponse))
				},
			}
			c := p.dial(t, s.register, sides{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-began
				cancel()
			}()
			_, err := client(c).UnaryCall(ctx, new(testgrpc.SimpleRequest))
			wantCode(t, err, codes.Canceled)
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v in the handler, want Canceled", err)
			}
			returned(t, c)
			<-(<-last).Done()
		})
	}
}

func returned(t *testing.T, c grpc.ClientConnInterface) {
	t.Helper()
	in, err := client(c).StreamingInputCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
}

// TestContextEndsWithHandler looks at what a handler leaves behind.
func TestContextEndsWithHandler(t *testing.T) {
	for name, p := range pairings() {
		t.Run(name, func(t *testing.T) {
			left := make(chan context.Context, 1)
			s := &scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				below, cancel := context.WithCancel(ctx)
				context.AfterFunc(below, cancel)
				left <- below
				return new(testgrpc.SimpleResponse), nil
			}}
			c := p.dial(t, s.register, sides{})
			for _, ctx := range []context.Context{context.Background(), t.Context()} {
				if _, err := client(c).UnaryCall(ctx, new(testgrpc.SimpleRequest)); err != nil {
					t.Fatal(err)
				}
				<-(<-left).Done()
			}
		})
	}
}

// foreignOption is an option that another package has made from one of grpc-go.
type foreignOption struct {
	grpc.CallOption
}

func TestCallOptions(t *testing.T) {
	c, _ := direct(t, &scripted{})
	call := func(opts ...grpc.CallOption) error {
		_, err := client(c).UnaryCall(t.Context(), &testgrpc.SimpleRequest{Payload: payload(10)}, opts...)
		return err
	}
	wantCode(t, call(grpc.CallAuthority("other")), codes.Unimplemented)
	wantCode(t, call(foreignOption{CallOption: grpc.CallAuthority("other")}), codes.Unimplemented)
	wantCode(t, call(foreignOption{CallOption: grpc.MaxCallSendMsgSize(1)}), codes.ResourceExhausted)
	wantCode(t, call(grpc.EmptyCallOption{}, grpc.StaticMethod(), grpc.MaxRetryRPCBufferSize(1), WithPriority(0)), codes.OK)
	var p peer.Peer
	var ended []error
	finish := grpc.OnFinish(func(err error) { ended = append(ended, err) })
	wantCode(t, call(grpc.Peer(&p), finish), codes.OK)
	wantCode(t, call(finish, grpc.UseCompressor("nope")), codes.Internal)
	if len(ended) != 2 || ended[0] != nil || status.Code(ended[1]) != codes.Internal {
		t.Errorf("OnFinish: got %v", ended)
	}
}

func TestPeers(t *testing.T) {
	for name, p := range pairings() {
		if strings.HasSuffix(name, "framed") {
			continue // it has no peer to tell of
		}
		t.Run(name, func(t *testing.T) {
			c := p.dial(t, new(scripted).register, sides{})
			var there peer.Peer
			if _, err := client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest), grpc.Peer(&there)); err != nil {
				t.Fatal(err)
			}
			if there.Addr == nil || there.Addr.String() == "" {
				t.Errorf("got %+v, want an address", there)
			}
		})
	}
}

type secureToken struct{ token }

func (secureToken) RequireTransportSecurity() bool { return true }

// TestSecureCredentials sends what needs a secure transport only over one.
func TestSecureCredentials(t *testing.T) {
	give := grpc.PerRPCCredentials(secureToken{token{md: map[string]string{"token": "t"}}})
	for name, want := range map[string]codes.Code{
		"in process": codes.OK, "TCP with TLS": codes.OK, "shared memory": codes.OK,
		"in process, framed": codes.Unauthenticated, "us to grpc-go": codes.Unauthenticated, "grpc-go": codes.Unauthenticated,
	} {
		t.Run(name, func(t *testing.T) {
			c := pairings()[name].dial(t, new(scripted).register, sides{})
			_, err := client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest), give)
			wantCode(t, err, want)
		})
	}
	var o outcome
	c, _ := directAs(t, securePeer("test", "test"), &scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		return says("%s", heard(ctx))
	}}, WithPerRPCCredentials(token{md: map[string]string{"Everywhere": "e"}}))
	o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest), give)
	if got := fmt.Sprint(o.Notes); got != `[everywhere=["e"] token=["t"], 0 bytes]` {
		t.Errorf("got %s", got)
	}
}

var _ credentials.PerRPCCredentials = secureToken{}

// TestCaller shows what a handler learns from the head.
func TestCaller(t *testing.T) {
	s := NewServer()
	(&scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		c, ok := CallerFromContext(ctx)
		return says("%v %s %s", ok, c.Tenant, c.Peer)
	}}).register(s)
	m, _, err := serverHandler{s}.ServeUnary(t.Context(), &call.Head{Method: unaryMethod, Tenant: "blue", Peer: "pid:7"}, &call.Message{Data: []byte{}})
	if err != nil {
		t.Fatal(err)
	}
	out := new(testgrpc.SimpleResponse)
	f := codecState{codec: codecFor(""), proto: true, maxReceive: 1 << 20}
	if err := f.unpack(m, out); err != nil || out.GetUsername() != "true blue pid:7" {
		t.Errorf("got %q, %v", out.GetUsername(), err)
	}
	if _, ok := CallerFromContext(t.Context()); ok {
		t.Error("a caller came out of nothing")
	}
}

// TestWaitForReady calls a name that nobody has yet.
func TestWaitForReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := new(Network)
		c, err := Dial("inproc:later", WithNetwork(network))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest))
		wantCode(t, err, codes.Unavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = client(c).UnaryCall(ctx, new(testgrpc.SimpleRequest), grpc.WaitForReady(true))
		wantCode(t, err, codes.DeadlineExceeded)
		if !strings.Contains(err.Error(), "nobody listens") {
			t.Errorf("got %v, want the reason too", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest), grpc.WaitForReady(true))
			done <- err
		}()
		synctest.Wait()
		l, err := network.listen("later")
		if err != nil {
			t.Fatal(err)
		}
		serveFabric(t, l, new(scripted).register, sides{})
		wantCode(t, <-done, codes.OK)
	})
}

// TestRedial calls a server again that was away.
func TestRedial(t *testing.T) {
	network := new(Network)
	c := dialFabric(t, "inproc:test", sides{fabric: []Option{WithNetwork(network)}})
	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		l, err := network.listen("test")
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer()
		new(scripted).register(s)
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, l) }()
		_, err = client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest), grpc.WaitForReady(true))
		wantCode(t, err, codes.OK)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_, err = client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest))
		wantCode(t, err, codes.Unavailable)
	}
}

// TestBackoff counts attempts to connect.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		c := newClientConn("test", newRedial(func(context.Context) (*link, error) {
			attempts++
			return nil, errors.New("no route")
		}, elsewhere()), newOptions(nil))
		defer c.Close()
		for range 10 {
			err := c.Invoke(t.Context(), unaryMethod, new(testgrpc.SimpleRequest), new(testgrpc.SimpleResponse))
			wantCode(t, err, codes.Unavailable)
		}
		if attempts != 1 {
			t.Errorf("got %d attempts at once, want 1", attempts)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := c.Invoke(ctx, unaryMethod, new(testgrpc.SimpleRequest), new(testgrpc.SimpleResponse), grpc.WaitForReady(true))
		wantCode(t, err, codes.DeadlineExceeded)
		if attempts < 4 || attempts > 7 {
			t.Errorf("got %d attempts in 10 seconds, want them further and further apart", attempts)
		}
	})
}

// TestBackoffOnThisMachine has calls fail for ten minutes: a target on this machine that is back is
// tried soon, but not all the time.
func TestBackoffOnThisMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		c := newClientConn("test", newRedial(func(context.Context) (*link, error) {
			attempts++
			return nil, errors.New("not there")
		}, onThisMachine()), newOptions(nil))
		defer c.Close()
		const minutes = 10
		for began := time.Now(); time.Since(began) < minutes*time.Minute; time.Sleep(10 * time.Millisecond) {
			err := c.Invoke(t.Context(), unaryMethod, new(testgrpc.SimpleRequest), new(testgrpc.SimpleResponse))
			wantCode(t, err, codes.Unavailable)
		}
		if attempts < 60*minutes || attempts > 10*60*minutes {
			t.Errorf("got %d attempts in %d minutes, want 1 to 10 a second", attempts, minutes)
		}
	})
}

func TestClosed(t *testing.T) {
	for name, p := range pairings() {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{}, 1)
			s := &scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				began <- struct{}{}
				<-ss.Context().Done()
				return ss.Context().Err()
			}}
			c := p.dial(t, s.register, sides{}).(interface {
				grpc.ClientConnInterface
				Close() error
			})
			stream, err := client(c).FullDuplexCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			<-began
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if _, err := stream.Recv(); status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
				t.Errorf("got %v", err)
			}
			_, err = client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest))
			if status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestStop stops a server while a call runs, gently and not.
func TestStop(t *testing.T) {
	var let chan struct{}
	began := make(chan struct{}, 1)
	s := &scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		began <- struct{}{}
		select {
		case <-let:
			return new(testgrpc.SimpleResponse), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	for name, stop := range map[string]func(*Server){"graceful": (*Server).GracefulStop, "at once": (*Server).Stop} {
		t.Run(name, func(t *testing.T) {
			let = make(chan struct{})
			c, server := direct(t, s)
			done := make(chan error, 1)
			go func() {
				// This caller can't leave: the handler must.
				_, err := client(c).UnaryCall(context.Background(), new(testgrpc.SimpleRequest))
				done <- err
			}()
			<-began
			stopped := make(chan struct{})
			go func() { stop(server); close(stopped) }()
			if name == "at once" {
				<-stopped
				if err := <-done; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
					t.Errorf("got %v", err)
				}
				return
			}
			for !server.stopping.Load() {
				runtime.Gosched()
			}
			_, err := client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest))
			wantCode(t, err, codes.Unavailable)
			close(let)
			wantCode(t, <-done, codes.OK)
			<-stopped
		})
	}
}

// TestStopWakesStreams stops a server whose handler waits for a message.
func TestStopWakesStreams(t *testing.T) {
	began := make(chan struct{}, 1)
	s := &scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
		began <- struct{}{}
		_, err := ss.Recv()
		return err
	}}
	for name, p := range pairings() {
		if strings.Contains(name, "grpc-go") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			server := make(chan *Server, 1)
			c := p.dial(t, func(r grpc.ServiceRegistrar) {
				s.register(r)
				server <- r.(*Server)
			}, sides{})
			stream, err := client(c).FullDuplexCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			<-began
			(<-server).Stop()
			if _, err := stream.Recv(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
				t.Errorf("got %v, want that the server is gone", err)
			}
		})
	}
}

func TestWrongMetadataOfHandlers(t *testing.T) {
	bad := metadata.MD{"bad key": {"1"}}
	c, _ := direct(t, &scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		for _, err := range []error{grpc.SetHeader(ctx, bad), grpc.SendHeader(ctx, bad), grpc.SetTrailer(ctx, bad)} {
			if status.Code(err) != codes.Internal {
				return nil, fmt.Errorf("got %w, want Internal", err)
			}
		}
		return new(testgrpc.SimpleResponse), nil
	}})
	_, err := client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest))
	wantCode(t, err, codes.OK)
}

func TestTargets(t *testing.T) {
	for _, target := range []string{"inproc:x", "localhost:1", "tcp:localhost:1"} {
		if _, err := Dial(target); err == nil {
			t.Errorf("dial %s without what it needs: no error", target)
		}
		if _, err := Listen(target); err == nil {
			t.Errorf("listen on %s without what it needs: no error", target)
		}
	}
	network := new(Network)
	if _, err := network.listen("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := network.listen("a"); err == nil {
		t.Error("a name was given twice")
	}
}

func TestRegisterTwice(t *testing.T) {
	s := NewServer()
	registerInterop(s)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	registerInterop(s)
}

func TestServiceInfo(t *testing.T) {
	s, g := NewServer(), grpc.NewServer()
	registerInterop(s)
	registerInterop(g)
	got, want := s.GetServiceInfo()["grpc.testing.TestService"], g.GetServiceInfo()["grpc.testing.TestService"]
	if len(got.Methods) != len(want.Methods) || got.Metadata != want.Metadata {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestWindow sends to a handler that does not receive: the sender stops after a
// bounded number of messages, and goes on when there is room.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		receive := make(chan struct{})
		s := &scripted{input: func(ss testgrpc.TestService_StreamingInputCallServer) error {
			<-receive
			for {
				if _, err := ss.Recv(); err != nil {
					return ss.SendAndClose(new(testgrpc.StreamingInputCallResponse))
				}
			}
		}}
		c, _ := direct(t, s)
		in, err := client(c).StreamingInputCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 1000 {
				if in.Send(&testgrpc.StreamingInputCallRequest{Payload: payload(10 << 10)}) == nil {
					sent++
				}
			}
		}()
		synctest.Wait()
		if sent == 0 || sent > windowBytes/(10<<10) {
			t.Errorf("got %d messages sent to nobody, want %d bytes at most", sent, windowBytes)
		}
		close(receive)
		<-done
		if _, err := in.CloseAndRecv(); err != nil || sent != 1000 {
			t.Errorf("got %d messages and %v", sent, err)
		}
	})
}

// TestDeadlineOfHead serves a transport that tells the deadline in the head alone.
func TestDeadlineOfHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		(&scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			d, ok := ctx.Deadline()
			if !ok || time.Until(d) != time.Second {
				return nil, fmt.Errorf("the deadline is %v, %v", d, ok)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}).register(s)
		head := &call.Head{Method: unaryMethod, Deadline: time.Now().Add(time.Second)}
		_, _, err := serverHandler{s}.ServeUnary(t.Context(), head, &call.Message{Data: []byte{}})
		wantCode(t, err, codes.DeadlineExceeded)
	})
}
