package plain

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/remote"
)

// proxy hands every call on: the shortest Handler in front of a Transport.
type proxy struct{ to call.Transport }

func (p proxy) Serve(s call.ServerStream) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	up, err := p.to.Open(ctx, s.Head())
	if err != nil {
		return err
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		forward(s, up)
	}()
	err = p.back(s, up)
	cancel()
	<-sent
	return err
}

// forward sends the caller's messages until the call is over.
func forward(s call.ServerStream, up call.ClientStream) {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			_ = up.CloseSend()
			return
		}
		if err != nil || up.Send(m) != nil {
			return
		}
	}
}

func (p proxy) back(s call.ServerStream, up call.ClientStream) error {
	header, err := up.Header()
	if err == nil && len(header) > 0 {
		if err := s.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		m, err := up.Recv()
		if err != nil {
			s.SetTrailer(up.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

// unaryProxy has the short way as well.
type unaryProxy struct{ proxy }

func (p unaryProxy) ServeUnary(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	return p.to.(call.Unary).Unary(ctx, h, m)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// backend is a grpc-go server of the interoperability tests.
func backend(t *testing.T, o ...grpc.ServerOption) (addr string, s *grpc.Server) {
	t.Helper()
	s = grpc.NewServer(o...)
	up := serveBackend(t, s)
	up.start()
	return up.addr, s
}

// upstream is a server that takes more services until start.
type upstream struct {
	addr  string
	start func()
}

func serveBackend(t *testing.T, s *grpc.Server) upstream {
	t.Helper()
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	l := listen(t)
	start := func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(l)
		}()
		t.Cleanup(func() {
			s.Stop()
			<-done
		})
	}
	return upstream{l.Addr().String(), start}
}

func dial(t *testing.T, addr string, o Options) call.Transport {
	t.Helper()
	to, err := Dial("passthrough:///"+addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	return to
}

// front serves h to plain peers.
func front(t *testing.T, h call.Handler, o Options) (addr string) {
	t.Helper()
	s := NewServer(h, o)
	l := listen(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func client(t *testing.T, addr string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// files are the descriptors of this program.
type files struct {
	*protoregistry.Files
	names []string
}

func (f files) Services() []string { return f.names }

func interopFiles() Descriptors {
	return files{protoregistry.GlobalFiles, []string{"grpc.testing.TestService"}}
}

// TestInterop runs the public test cases from a grpc-go client through a server and
// a transport of ours to a grpc-go server.
func TestInterop(t *testing.T) {
	for name, compressed := range map[string][]grpc.CallOption{
		"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)},
	} {
		for way, o := range map[string]Options{"streams": {}, "unary": {Descriptors: interopFiles()}} {
			t.Run(name+"/"+way, func(t *testing.T) {
				addr, _ := backend(t)
				to := dial(t, addr, Options{})
				cc := client(t, front(t, unaryProxy{proxy{to}}, o), grpc.WithDefaultCallOptions(compressed...))
				interopCases(t, cc)
			})
			t.Run(name+"/"+way+"/remote", func(t *testing.T) {
				addr, _ := backend(t)
				far := unaryProxy{proxy{dial(t, addr, Options{})}}
				near := unaryProxy{proxy{across(t, far)}}
				interopCases(t, client(t, front(t, near, o), grpc.WithDefaultCallOptions(compressed...)))
			})
		}
	}
}

// across is a transport to h over a framed connection.
func across(t *testing.T, h call.Handler) call.Transport {
	a, b := net.Pipe()
	near := remote.New(framed.Client(a, framed.Options{}), remote.Options{})
	far := remote.New(framed.Server(b, framed.Options{}), remote.Options{Handler: h})
	t.Cleanup(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			near.Close()
		}()
		far.Close()
		<-done
	})
	return near
}

// cancelAfterBegin is interop.DoCancelAfterBegin. A client of grpc-go that cancels and then says
// that it has sent everything may have a good answer before it sees its own cancelling.
func cancelAfterBegin(ctx context.Context, t *testing.T, c testgrpc.TestServiceClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.StreamingInputCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err = s.CloseAndRecv(); err != nil && status.Code(err) != codes.Canceled {
		t.Errorf("cancelled after its beginning: %v", err)
	}
}

func interopCases(t *testing.T, cc *grpc.ClientConn) {
	tc := testgrpc.NewTestServiceClient(cc)
	ctx := t.Context()
	interop.DoEmptyUnaryCall(ctx, tc)
	interop.DoLargeUnaryCall(ctx, tc)
	interop.DoClientStreaming(ctx, tc)
	interop.DoServerStreaming(ctx, tc)
	interop.DoPingPong(ctx, tc)
	interop.DoEmptyStream(ctx, tc)
	interop.DoTimeoutOnSleepingServer(ctx, tc)
	cancelAfterBegin(ctx, t, tc)
	interop.DoCancelAfterFirstResponse(ctx, tc)
	interop.DoCustomMetadata(ctx, tc)
	interop.DoStatusCodeAndMessage(ctx, tc)
	interop.DoSpecialStatusMessage(ctx, tc)
	interop.DoUnimplementedMethod(ctx, cc)
	interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
}

// peeker notes what a server is told.
type peeker struct {
	testgrpc.UnimplementedTestServiceServer
	md       metadata.MD
	deadline time.Time
	codec    string
}

func (p *peeker) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	p.md, _ = metadata.FromIncomingContext(ctx)
	p.deadline, _ = ctx.Deadline()
	if ts, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string }); ok {
		p.codec = ts.RecvCompress()
	}
	_ = grpc.SetHeader(ctx, metadata.MD{"head-bin": {"\x00\xfe"}})
	_ = grpc.SetTrailer(ctx, metadata.MD{"tail": {"a", "b"}})
	s, err := status.New(codes.DataLoss, "gone: é\n").WithDetails(&errdetails.ErrorInfo{Reason: "sunk", Domain: "sea"})
	if err != nil {
		return nil, err
	}
	return nil, s.Err()
}

// TestEverythingPasses checks what the chain must not change.
func TestEverythingPasses(t *testing.T) {
	for way, o := range map[string]Options{"streams": {}, "unary": {Descriptors: interopFiles()}} {
		t.Run(way, func(t *testing.T) {
			seen := new(peeker)
			s := grpc.NewServer()
			testgrpc.RegisterTestServiceServer(s, seen)
			l := listen(t)
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = s.Serve(l)
			}()
			t.Cleanup(func() { s.Stop(); <-served })
			to := dial(t, l.Addr().String(), Options{})
			cc := client(t, front(t, unaryProxy{proxy{to}}, o))
			deadline := time.Now().Add(time.Minute)
			ctx, cancel := context.WithDeadline(t.Context(), deadline)
			defer cancel()
			ctx = metadata.NewOutgoingContext(ctx, metadata.MD{"asked": {"a", "b"}, "raw-bin": {"\x00\xff"}})
			var header, trailer metadata.MD
			_, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{},
				grpc.Header(&header), grpc.Trailer(&trailer), grpc.UseCompressor(gzip.Name))
			st := status.Convert(err)
			if st.Code() != codes.DataLoss || st.Message() != "gone: é\n" || len(st.Details()) != 1 {
				t.Errorf("status %v %v", err, st.Details())
			}
			if d := deadline.Sub(seen.deadline); d < -time.Second || d > time.Second {
				t.Errorf("deadline moved by %v", d)
			}
			got := []any{seen.md["asked"], seen.md["raw-bin"], seen.codec, header["head-bin"], trailer["tail"]}
			want := []any{[]string{"a", "b"}, []string{"\x00\xff"}, "gzip", []string(nil), []string{"a", "b"}}
			// A header that comes with an error at once is part of the trailer.
			if header["head-bin"] != nil {
				want[3] = []string{"\x00\xfe"}
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// heads keeps the head of the last call.
type heads struct{ last *call.Head }

func (h *heads) Serve(s call.ServerStream) error {
	h.last = s.Head()
	return nil
}

func TestHead(t *testing.T) {
	h := new(heads)
	addr := front(t, h, Options{
		Descriptors: interopFiles(),
		Identify:    func(context.Context) (string, string, error) { return "harbour", "dinghy", nil },
	})
	cc := client(t, addr)
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"k": {"v"}})
	_ = cc.Invoke(ctx, "/grpc.testing.TestService/UnaryCall", &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{},
		grpc.CallContentSubtype("proto"), grpc.UseCompressor(gzip.Name))
	delete(h.last.Metadata, "user-agent")
	want := &call.Head{
		Method: "/grpc.testing.TestService/UnaryCall", Metadata: metadata.MD{"k": {"v"}}, Tenant: "harbour", Peer: "dinghy",
		Encoding: "gzip", Subtype: "proto",
	}
	if diff := cmp.Diff(h.last, want); diff != "" {
		t.Error(diff)
	}
	_ = cc.Invoke(ctx, "/grpc.testing.TestService/FullDuplexCall", &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{})
	if !h.last.Streaming || h.last.WaitForReady {
		t.Errorf("a streaming method that does not wait is taken for %+v", h.last)
	}
	for value, want := range map[string]bool{"true": true, "false": false, "": false} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{WaitForReadyKey: {value}})
		_ = cc.Invoke(ctx, "/grpc.testing.TestService/UnaryCall", &testgrpc.SimpleRequest{}, &testgrpc.SimpleResponse{})
		if h.last.WaitForReady != want || h.last.Metadata[WaitForReadyKey] != nil {
			t.Errorf("%q: %+v", value, h.last)
		}
	}
}

func TestIdentifyRefuses(t *testing.T) {
	addr := front(t, &heads{}, Options{Identify: func(context.Context) (string, string, error) {
		return "", "", status.Error(codes.Unauthenticated, "who are you?")
	}})
	_, err := testgrpc.NewTestServiceClient(client(t, addr)).EmptyCall(t.Context(), &testgrpc.Empty{})
	if status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	h := health.NewServer()
	h.SetServingStatus("x.Y", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	c := grpc_health_v1.NewHealthClient(client(t, front(t, &heads{}, Options{Health: h})))
	for service, want := range map[string]grpc_health_v1.HealthCheckResponse_ServingStatus{
		"": grpc_health_v1.HealthCheckResponse_SERVING, "x.Y": grpc_health_v1.HealthCheckResponse_NOT_SERVING,
	} {
		r, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || r.Status != want {
			t.Errorf("%q: %v, %v; want %v", service, r, err, want)
		}
	}
}

// TestCompressedMessages sends what is compressed already.
func TestCompressedMessages(t *testing.T) {
	addr, _ := backend(t)
	to := dial(t, addr, Options{MaxMessage: 1 << 20})
	pack := func(n int) *call.Message {
		raw, err := encoding.GetCodecV2("proto").Marshal(&testgrpc.SimpleRequest{ResponseSize: 7, Payload: &testgrpc.Payload{Body: make([]byte, n)}})
		if err != nil {
			t.Fatal(err)
		}
		return &call.Message{Data: gzipped(t, raw.Materialize()), Compressed: true}
	}
	h := &call.Head{Method: "/grpc.testing.TestService/UnaryCall", Encoding: gzip.Name}
	m, _, err := to.(call.Unary).Unary(t.Context(), h, pack(100))
	if err != nil || len(m.Data) < 7 {
		t.Error(m, err)
	}
	if _, _, err = to.(call.Unary).Unary(t.Context(), h, pack(2<<20)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that grows too long: %v", err)
	}
	unknown := h.Clone()
	unknown.Encoding = "nosuch"
	if _, _, err = to.(call.Unary).Unary(t.Context(), unknown, pack(1)); status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown compression: %v", err)
	}
	broken := &call.Message{Data: []byte("no gzip"), Compressed: true}
	if _, _, err = to.(call.Unary).Unary(t.Context(), h, broken); status.Code(err) != codes.Internal {
		t.Errorf("no gzip: %v", err)
	}
}

type sliceWriter []byte

func (w *sliceWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

// TestUnreachable makes calls to a server that does not run. Their errors say that they were not sent;
// the request of a unary call remains the caller's.
func TestUnreachable(t *testing.T) {
	l := listen(t)
	addr := l.Addr().String()
	l.Close()
	to := dial(t, addr, Options{})
	s, err := to.Open(t.Context(), &call.Head{Method: "/x.Y/Z"})
	if err == nil {
		_ = s.Send(&call.Message{Data: []byte("x")})
		_ = s.CloseSend()
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Unavailable || !isUnsent(err) {
		t.Errorf("a stream: %v", err)
	}
	for name, m := range map[string]*call.Message{"plain": {Data: []byte("x")}, "compressed": {Data: gzipped(t, nil), Compressed: true}} {
		freed := 0
		m.Release = func() { freed++ }
		h := &call.Head{Method: "/x.Y/Z", Encoding: gzip.Name}
		if _, _, err := to.(call.Unary).Unary(t.Context(), h, m); status.Code(err) != codes.Unavailable || !isUnsent(err) || freed != 0 {
			t.Errorf("%s: %v, and the request was freed %d times", name, err, freed)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := to.(call.Unary).Unary(ctx, h, m); status.Code(err) != codes.Canceled || isUnsent(err) || freed != 1 {
			t.Errorf("%s, cancelled: %v, and the request was freed %d times", name, err, freed)
		}
	}
}

// TestMetadataBeyondTheServersLimit: the caller is at fault, not the server.
func TestMetadataBeyondTheServersLimit(t *testing.T) {
	addr, _ := backend(t, grpc.MaxHeaderListSize(4096))
	to := dial(t, addr, Options{})
	h := &call.Head{Method: "/grpc.testing.TestService/EmptyCall"}
	if _, _, err := to.(call.Unary).Unary(t.Context(), h, &call.Message{}); err != nil {
		t.Fatal(err)
	}
	h.Metadata = metadata.Pairs("large", strings.Repeat("x", 8192))
	_, _, err := to.(call.Unary).Unary(t.Context(), h, &call.Message{})
	if status.Code(err) != codes.ResourceExhausted || isUnsent(err) {
		t.Errorf("unary: %v", err)
	}
	if _, err := to.Open(t.Context(), h); status.Code(err) != codes.ResourceExhausted || isUnsent(err) {
		t.Errorf("a stream: %v", err)
	}
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b sliceWriter
	w, err := encoding.GetCompressor(gzip.Name).Compress(&b)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(data)
	_ = w.Close()
	return b
}

// TestSharedPort serves gRPC and another protocol on one port, by ALPN.
func TestSharedPort(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	config := certificate.TLS.Clone()
	config.NextProtos = []string{"h2", "other"}
	addr, _ := backend(t)
	s := NewServer(proxy{dial(t, addr, Options{})}, Options{})
	defer s.Stop()
	l := tls.NewListener(listen(t), config)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			t := nc.(*tls.Conn)
			_ = t.Handshake()
			if t.ConnectionState().NegotiatedProtocol == "other" {
				_, _ = io.WriteString(t, "ahoy")
				_ = t.Close()
				continue
			}
			_ = s.ServeConn(t)
		}
	}()
	trust := certificate.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trust.ServerName = "example.com"
	cc := client(t, l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(trust)))
	interop.DoEmptyUnaryCall(t.Context(), testgrpc.NewTestServiceClient(cc))
	trust = trust.Clone()
	trust.NextProtos = []string{"other"}
	other, err := tls.Dial("tcp", l.Addr().String(), trust)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(other); string(got) != "ahoy" || err != nil {
		t.Errorf("other protocol: %q, %v", got, err)
	}
	other.Close()
	cc.Close()
	l.Close()
	<-done
}

// TestGracefulStop waits for a call that runs.
func TestGracefulStop(t *testing.T) {
	addr, _ := backend(t)
	s := NewServer(proxy{dial(t, addr, Options{})}, Options{})
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	stream, err := testgrpc.NewTestServiceClient(client(t, l.Addr().String())).FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.GracefulStop()
	}()
	for { // until it takes no more connections
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		nc.Close()
	}
	if err := ask(); err != nil {
		t.Errorf("a call that ran before: %v", err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	<-stopped
	if err := <-served; err != nil {
		t.Error(err)
	}
}
