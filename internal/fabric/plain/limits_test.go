package plain

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
)

// A boundedServer serves calls, which pass to a backend.
type boundedServer struct {
	*Server
	addr   string
	client testgrpc.TestServiceClient
}

func serveBounded(t *testing.T, h func(call.Transport) call.Handler, o Options) *boundedServer {
	t.Helper()
	addr, _ := backend(t)
	s := NewServer(h(dial(t, addr, Options{})), o)
	l := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(serving.Wait)
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &boundedServer{s, l.Addr().String(), testgrpc.NewTestServiceClient(conn)}
}

// send calls with a message of n bytes.
func (s *boundedServer) send(ctx context.Context, n int, o ...grpc.CallOption) error {
	_, err := s.client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, n)}}, o...)
	return err
}

// awaitHeld waits until calls hold that many bytes.
func (s *Server) awaitHeld(t *testing.T, want int64) {
	t.Helper()
	await(t, "bytes are held or released", func() bool { return s.HeldBytes() == want })
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("not in time: " + what)
		}
	}
}

// The messages of all calls together are bounded, with the size that they have when they are
// decompressed, and count no longer once they are freed.
func TestMessagesAreBounded(t *testing.T) {
	const held = 4 << 20
	for name, handler := range map[string]func(call.Transport) call.Handler{
		"streams": func(to call.Transport) call.Handler { return proxy{to} },
		"unary":   func(to call.Transport) call.Handler { return unaryProxy{proxy{to}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := serveBounded(t, handler, Options{MaxMessage: 8 << 20, MaxHeld: held})
			for range 10 {
				if err := s.send(t.Context(), held/8); err != nil {
					t.Fatal(err)
				}
				s.awaitHeld(t, 0)
				if err := s.send(t.Context(), held/16, grpc.UseCompressor(gzip.Name)); err != nil {
					t.Fatal("compressed:", err)
				}
				s.awaitHeld(t, 0)
			}
			err := s.send(t.Context(), held/2)
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "send it again later") {
				t.Errorf("a message beyond the limit: %v", err)
			}
			if err := s.send(t.Context(), held/2, grpc.UseCompressor(gzip.Name)); err == nil {
				t.Error("a compressed message beyond the limit is served")
			}
			s.awaitHeld(t, 0) // of the refused calls
			for _, client := range []string{"a", "b"} {
				if err := s.messages.Reserve(client, held/2); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.send(t.Context(), 2*grpcconn.FreeBytes); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a message while nothing is left: %v", err)
			}
			if err := s.send(t.Context(), grpcconn.FreeBytes/2); err != nil {
				t.Errorf("a small message while nothing is left: %v", err)
			}
			s.messages.Release("a", held/2)
			s.messages.Release("b", held/2)
			s.awaitHeld(t, 0)
		})
	}
}

// tenantOf identifies the caller by its own word.
func tenantOf(ctx context.Context) (tenant, peer string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("tenant"), ""), "", nil
}

// beginCall starts a call of a tenant over a connection of its own, with the body of a message, and
// returns the error by which it ends.
func (s *boundedServer) beginCall(t *testing.T, tenant string, body io.Reader) <-chan error {
	t.Helper()
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr+"/grpc.testing.TestService/UnaryCall", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Tenant", tenant)
	ended := make(chan error, 1)
	go func() {
		response, err := transport.RoundTrip(r)
		if err != nil {
			ended <- err
			return
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		ended <- statusOf(response)
	}()
	return ended
}

// statusOf returns the error of a response.
func statusOf(response *http.Response) error {
	field := func(name string) string { return response.Header.Get(name) + response.Trailer.Get(name) }
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(field("Grpc-Status"))); err != nil {
		return err
	}
	return status.Error(code, field("Grpc-Message"))
}

// incomplete is a body of some bytes of a message of 63 MiB, after which nothing follows.
func incomplete(t *testing.T, bytes int64) io.Reader {
	head := binary.BigEndian.AppendUint32([]byte{0}, 63<<20)
	rest, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })
	return io.MultiReader(strings.NewReader(string(head)), io.LimitReader(zeros{}, bytes), rest)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Attack: many clients each send most of a message and stop. The messages count as they arrive, and
// neither a connection nor a client takes the share of the others, whose calls go on.
func TestIncompleteMessagesAreBounded(t *testing.T) {
	const held = 32 << 20
	s := serveBounded(t, func(to call.Transport) call.Handler { return unaryProxy{proxy{to}} },
		Options{MaxHeld: held, ClientTimeout: time.Hour, Identify: tenantOf, Descriptors: interopFiles()})
	if err := <-s.beginCall(t, "attacker", incomplete(t, held/2)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "this connection") {
		t.Errorf("beyond the share of a connection: %v", err)
	}
	s.awaitHeld(t, 0)
	const size = held/connShare - 1<<20
	for range clientShare {
		s.beginCall(t, "attacker", incomplete(t, size))
	}
	s.awaitHeld(t, clientShare*(size+5-grpcconn.FreeBytes))
	for range 8 {
		if err := <-s.beginCall(t, "attacker", incomplete(t, size)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("beyond the share of a client: %v", err)
		}
	}
	victim := metadata.AppendToOutgoingContext(t.Context(), "tenant", "victim")
	for range 10 {
		if err := s.send(victim, 1<<20); err != nil {
			t.Errorf("beside the attacker: %v", err)
		}
	}
}

// Attack: a client stops in the middle of a message. The call ends and says why; one of the same
// connection that waits for a message that has not begun goes on.
func TestSlowSenders(t *testing.T) {
	for name, o := range map[string]Options{"unary": {Descriptors: interopFiles()}, "streams": {}} {
		t.Run(name, func(t *testing.T) {
			o.ClientTimeout, o.ClientTimeoutSetting = 100*time.Millisecond, "`some setting`"
			s := serveBounded(t, func(to call.Transport) call.Handler { return unaryProxy{proxy{to}} }, o)
			err := <-s.beginCall(t, "", incomplete(t, 1<<20))
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "too slowly: 100ms") || !strings.Contains(err.Error(), "(`some setting`)") {
				t.Errorf("the call ends with %v", err)
			}
			s.awaitHeld(t, 0)
		})
	}
}

// A silentClient is a client of HTTP/2 that reads nothing, and grants no flow-control window for
// responses.
type silentClient struct{ net.Conn }

func dialSilent(t *testing.T, addr string) silentClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	c := silentClient{nc}
	c.write(t, []byte(grpcconn.Preface))
	const settings, initialWindowSize = 0x4, 0x4
	c.writeFrame(t, settings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, initialWindowSize}, 0))
	return c
}

func (c silentClient) write(t *testing.T, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// writeFrame writes a frame (RFC 9113, section 4.1).
func (c silentClient) writeFrame(t *testing.T, kind, flags byte, stream uint32, payload []byte) {
	t.Helper()
	n := len(payload)
	head := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, stream)
	c.write(t, append(head, payload...))
}

// call calls a method with a message.
func (c silentClient) call(t *testing.T, stream uint32, tenant string, message []byte) {
	t.Helper()
	var fields []byte // literals without indexing (RFC 7541, section 6.2.2)
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/grpc.testing.TestService/UnaryCall"},
		{":authority", "test"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"tenant", tenant},
	} {
		fields = append(fields, 0)
		for _, text := range field {
			fields = append(append(fields, byte(len(text))), text...)
		}
	}
	const data, headers, endHeaders, endStream = 0x0, 0x1, 0x4, 0x1
	c.writeFrame(t, headers, endHeaders, stream, fields)
	c.writeFrame(t, data, endStream, stream, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
}

// Attack: a client calls for large responses and reads none. They count until they are sent, further
// calls are refused, the calls of others go on, and the connection ends.
func TestClientsThatReadNothing(t *testing.T) {
	const held, size = 32 << 20, 1 << 20
	refusals := map[string]*atomic.Int32{}
	for _, reason := range Reasons {
		refusals[reason] = new(atomic.Int32)
	}
	s := serveBounded(t, func(to call.Transport) call.Handler { return unaryProxy{proxy{to}} }, Options{
		MaxHeld: held, ClientTimeout: 2 * time.Second, Identify: tenantOf, Descriptors: interopFiles(),
		Refused: func(reason string) { refusals[reason].Add(1) },
	})
	const responseSize = 2 << 3 // the field of SimpleRequest, with the wire type of a varint, 0
	request := binary.AppendUvarint([]byte{responseSize}, size)
	attacker := dialSilent(t, s.addr)
	const calls = held / connShare / size
	for i := range uint32(calls - 1) {
		attacker.call(t, 2*i+1, "attacker", request)
	}
	await(t, "responses are held", func() bool { return s.HeldBytes() > (calls-1)*(size-grpcconn.FreeBytes) })
	victim := metadata.AppendToOutgoingContext(t.Context(), "tenant", "victim")
	if err := s.send(victim, 1000); err != nil {
		t.Errorf("beside the attacker: %v", err)
	}
	attacker.call(t, 2*calls+1, "attacker", request)
	attacker.call(t, 2*calls+3, "attacker", request)
	refused := func(reason string) func() bool {
		return func() bool { return refusals[reason].Load() > 0 }
	}
	await(t, "a response beyond the share is refused", refused("memory"))
	// With more than half of its share the client must read.
	if err := s.messages.Reserve("attacker", held/clientShare/2); err != nil {
		t.Fatal(err)
	}
	await(t, "the connection ends", refused("slow_response"))
	s.awaitHeld(t, held/clientShare/2)
	if err := s.send(victim, 1000); err != nil {
		t.Errorf("after the attack: %v", err)
	}
}

// The calls of a client are bounded.
func TestCallsAreBounded(t *testing.T) {
	s := serveBounded(t, func(to call.Transport) call.Handler { return proxy{to} }, Options{MaxCalls: 2})
	if err := s.calls.Reserve("loopback", 4); err != nil {
		t.Fatal(err)
	}
	if err := s.send(t.Context(), 1); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "4 calls are in flight, of 8 at most") {
		t.Errorf("beyond the client's calls: %v", err)
	}
	s.calls.Release("loopback", 1)
	if err := s.send(t.Context(), 1); err != nil {
		t.Error(err)
	}
	s.calls.Release("loopback", 3)
	await(t, "calls have ended", func() bool { return s.calls.Held() == 0 })
}

// A client without an identity is a host, or a network of IPv6; this machine is one.
func TestHostOf(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:1": "loopback", "127.9.9.9:1": "loopback", "[::1]:1": "loopback", "192.0.2.7:8": "192.0.2.7",
		"[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64", "[::ffff:192.0.2.7]:1": "192.0.2.7", "[fe80::1%eth0]:2": "fe80::/64", "@": "@",
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: textAddr(addr)})
		if got := hostOf(ctx); got != want {
			t.Errorf("%s is %s, want %s", addr, got, want)
		}
	}
}

// textAddr is an address as a text.
type textAddr string

// Network implements net.Addr.
func (textAddr) Network() string { return "test" }

func (a textAddr) String() string { return string(a) }
