package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
)

// An echoPort is a port of models with a service that returns its request.
type echoPort struct {
	addr   string
	bodies *modelBodies
}

// openEcho serves until the test ends. Clients may make it wait for timeout; calls for which admit
// returns an error are refused.
func openEcho(t *testing.T, timeout time.Duration, admit func(metadata.MD) error) *echoPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bodies := newModelBodies()
	open := func(ctx context.Context, conn *grpcconn.Conn, md metadata.MD, streams bool) (context.Context, error) {
		if err := admit(md); err != nil {
			return ctx, err
		}
		return conn.Open(ctx, grpcconn.Client{Name: "client", Streams: streams})
	}
	server := newCallServer(timeout, bodies, open, func(r callRegistrar) { r.RegisterService(echoService(), nil) })
	p := &modelPort{timeout: timeout, log: slog.New(slog.DiscardHandler), http: newConnQueue(l.Addr()), grpc: newConnQueue(l.Addr())}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- p.run(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }), server)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &echoPort{l.Addr().String(), bodies}
}

// largeResponse is the size of the responses of Large, in bytes.
const largeResponse = 1 << 20

// echoService has Echo, which returns its message, Echoes, which does so for each of a stream, and
// Large, whose responses are larger than its requests.
func echoService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "test.Echo", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.BytesValue)
			return m, decode(m)
		}}, {MethodName: "Large", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return wrapperspb.Bytes(make([]byte, largeResponse)), decode(new(wrapperspb.BytesValue))
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Echoes", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				m := new(wrapperspb.BytesValue)
				if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
		}}},
	}
}

func admitAll(metadata.MD) error { return nil }

func (p *echoPort) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxModelMessage)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func echo(ctx context.Context, conn *grpc.ClientConn, n int) error {
	return conn.Invoke(ctx, "/test.Echo/Echo", wrapperspb.Bytes(make([]byte, n)), new(wrapperspb.BytesValue))
}

// The port has HTTP/1.1 and gRPC, and the bytes of a request are held until it is answered.
func TestModelPortProtocols(t *testing.T) {
	p := openEcho(t, time.Minute, admitAll)
	response, err := http.Get("http://" + p.addr)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || string(text) != "HTTP/1.1" {
		t.Errorf("over HTTP: %q, %v", text, err)
	}
	conn := p.dial(t)
	for _, n := range []int{0, 1, freeBody, 3 << 20} {
		if err := echo(t.Context(), conn, n); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	p.expectHeld(t, 0)
}

func (p *echoPort) expectHeld(t *testing.T, want int64) {
	t.Helper()
	// The client of a call that the server ends may read the status before the handler has returned,
	// which releases what the call held.
	deadline := time.After(2 * time.Minute)
	for p.bodies.Held() != want {
		select {
		case <-deadline:
			t.Errorf("%d bytes are held, want %d", p.bodies.Held(), want)
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A call beyond what a client may hold is refused while it arrives, and the messages of a stream count
// until they are received. Small requests are served, and other calls of the connection continue.
func TestGRPCBodiesAreBounded(t *testing.T) {
	p := openEcho(t, time.Minute, admitAll)
	conn := p.dial(t)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/Echoes")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.bodies.Reserve("client", maxClientBodies); err != nil {
		t.Fatal(err)
	}
	if err := echo(t.Context(), conn, 1<<20); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "send it again later") {
		t.Errorf("a large request: %v", err)
	}
	if err := echo(t.Context(), conn, freeBody/2); err != nil {
		t.Errorf("a small request: %v", err)
	}
	sent, got := wrapperspb.Bytes(make([]byte, 1<<20)), new(wrapperspb.BytesValue)
	if err := errors.Join(stream.SendMsg(sent), stream.RecvMsg(got)); err == nil {
		t.Error("a stream has a large message")
	}
	p.bodies.Release("client", maxClientBodies)
	if stream, err = conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/Echoes"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := errors.Join(stream.SendMsg(sent), stream.RecvMsg(got)); err != nil || len(got.GetValue()) != 1<<20 {
			t.Errorf("a stream: %d bytes, %v", len(got.GetValue()), err)
		}
		p.expectHeld(t, 0)
	}
	if err := echo(t.Context(), conn, 1<<20); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	p.expectHeld(t, 0)
}

// Responses count until they are sent: a client that requests large ones, and reads none, is refused.
func TestGRPCResponsesAreBounded(t *testing.T) {
	p := openEcho(t, time.Minute, admitAll)
	conn := p.dial(t)
	large := func() error {
		return conn.Invoke(t.Context(), "/test.Echo/Large", wrapperspb.Bytes(nil), new(wrapperspb.BytesValue))
	}
	if err := large(); err != nil {
		t.Error(err)
	}
	p.expectHeld(t, 0)
	if err := p.bodies.Reserve("client", maxClientBodies-largeResponse/2); err != nil {
		t.Fatal(err)
	}
	if err := large(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "send it again later") {
		t.Errorf("a large response: %v", err)
	}
	if err := echo(t.Context(), conn, freeBody/2); err != nil {
		t.Errorf("a small response: %v", err)
	}
	p.bodies.Release("client", maxClientBodies-largeResponse/2)
	if err := large(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	p.expectHeld(t, 0)
}

// A call that is not admitted is refused before its request is read, and leaves nothing behind.
func TestGRPCCallsAreAdmitted(t *testing.T) {
	refused := status.Error(codes.Unauthenticated, "the key is missing")
	p := openEcho(t, time.Minute, func(md metadata.MD) error {
		if len(md.Get("key")) == 0 {
			return refused
		}
		return nil
	})
	conn := p.dial(t)
	if err := echo(t.Context(), conn, 10<<20); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without the key: %v", err)
	}
	with := metadata.AppendToOutgoingContext(t.Context(), "key", "x")
	if err := echo(with, conn, 1); err != nil {
		t.Errorf("with the key: %v", err)
	}
	if err := conn.Invoke(with, "/test.Echo/Missing", wrapperspb.Bytes(make([]byte, 1<<20)), new(wrapperspb.BytesValue)); status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown method: %v", err)
	}
}

// A watchedConn calls closed when its peer has closed it.
type watchedConn struct {
	net.Conn
	closed func()
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.closed()
	}
	return n, err
}

// begunCall starts a call over HTTP/2 with the body of a message. It closes closed when the server
// has closed the connection.
func (p *echoPort) begunCall(t *testing.T, body io.Reader, closed chan struct{}) (*http.Response, error) {
	t.Helper()
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &watchedConn{conn, sync.OnceFunc(func() { close(closed) })}, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr+"/test.Echo/Echo", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	return transport.RoundTrip(r)
}

// message returns an encoded message of n bytes in the framing of gRPC.
func message(n int) []byte {
	value := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(n))
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(value)+n))
	return append(append(head, value...), make([]byte, n)...)
}

// A call whose request stops arriving ends, and its bytes are released.
func TestGRPCRequestsArriveInTime(t *testing.T) {
	p := openEcho(t, 100*time.Millisecond, admitAll)
	reader, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = writer.Write(message(1 << 20)[:1<<19]) }()
	response, err := p.begunCall(t, reader, make(chan struct{}))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	text := response.Header.Get("Grpc-Message") + response.Trailer.Get("Grpc-Message")
	if !strings.Contains(text, "--client-timeout") {
		t.Errorf("the call ends with %q, %v", text, err)
	}
	p.expectHeld(t, 0)
}

// A client that does not read a response loses its connection. (A call that ends before its response
// has begun is refused instead: its time includes that of the server, which encodes the response.)
func TestGRPCResponsesAreReadInTime(t *testing.T) {
	for timeout := 100 * time.Millisecond; ; timeout *= 2 {
		closed := make(chan struct{})
		response, err := openEcho(t, timeout, admitAll).begunCall(t, bytes.NewReader(message(32<<20)), closed)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		if response.Header.Get("Grpc-Status") != "" && timeout < time.Minute {
			continue
		}
		<-closed
		if n, err := io.Copy(io.Discard, response.Body); err == nil {
			t.Errorf("it reads %d bytes, to the end", n)
		}
		return
	}
}
