package plain

import (
	"cmp"
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
	"github.com/outboard-run/outboard/internal/fabric/inflate"
)

// maxHeaderList bounds the metadata of a call in bytes, as HTTP/2 counts them: more than the fabric
// permits, whose error is clearer.
const maxHeaderList = 256 << 10

// The limits of a server are divided in this way: a client may hold half of what all may hold, and
// one connection a quarter, so that two clients, or two programs of one client, do not need each
// other's share.
const (
	clientShare = 2
	connShare   = 4
)

func newMessageBudget(o *Options) *grpcconn.Budget {
	return grpcconn.NewBudget(o.MaxHeld, o.MaxHeld/clientShare, func(held, all, each int64) error {
		return outboard.Errorf(outboard.Busy, "", "messages of %v are held, of %v at most and %v of one client: send it again later",
			outboard.Bytes(held), outboard.Bytes(all), outboard.Bytes(each))
	})
}

func newCallBudget(o *Options) *grpcconn.Budget {
	all := int64(o.MaxCalls) * connShare
	return grpcconn.NewBudget(all, all/clientShare, func(held, all, each int64) error {
		return outboard.Errorf(outboard.Busy, "", "%d calls are in flight, of %d at most and %d of one client: send it again later", held, all, each)
	})
}

// connOptions returns the options of the server's connections.
func (s *Server) connOptions() *grpcconn.Options {
	return &grpcconn.Options{
		Budget: s.messages, MaxBytes: s.o.MaxHeld / connShare,
		// grpc-go has a client wait that would begin more than MaxCalls. This also bounds the calls
		// whose handlers have returned and whose responses are unread.
		MaxCalls: 2 * s.o.MaxCalls,
		Timeout:  s.o.ClientTimeout, Setting: s.o.ClientTimeoutSetting, SpareReaders: true,
		Refuse: refusal, Refused: s.refused,
	}
}

// Reasons are the reasons for which a server ends calls and connections because of their client: it
// has too many connections, holds too many bytes, has too many calls, sends a message too slowly, reads
// a response too slowly.
var Reasons = []string{
	string(tooManyConns), string(grpcconn.Memory), string(grpcconn.Calls), string(grpcconn.SlowRequest), string(grpcconn.SlowResponse),
}

// refused reports that the server has ended a call or a connection.
func (s *Server) refused(reason grpcconn.Reason, err error) {
	if s.o.Refused != nil {
		s.o.Refused(string(reason))
	}
	s.o.Logger.Debug("plain gRPC: a call has ended", "reason", string(reason), "error", err)
}

// refusal returns the status for an error by which the server ends a call.
func refusal(err error) error {
	if outboard.KindOf(err) == outboard.Busy {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// An admission is what the tap handler found out about a call.
type admission struct {
	tenant, peer string
	streaming    bool
}

type admissionKey struct{}

// admit is the tap handler: it opens every call before its messages are read.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, conn := grpcconn.FromTap(ctx)
	if conn == nil {
		return ctx, status.Error(codes.Internal, "the connection has no credentials of the server")
	}
	tenant, name, err := s.o.Identify(ctx)
	if err != nil {
		return ctx, status.Convert(err).Err()
	}
	client := cmp.Or(tenant, hostOf(ctx))
	if err := s.calls.Reserve(client, 1); err != nil {
		s.refused(grpcconn.Calls, err)
		return ctx, refusal(err)
	}
	release := func() { s.calls.Release(client, 1) }
	a := admission{tenant, name, s.isStreaming(info.FullMethodName)}
	opened, err := conn.Open(context.WithValue(ctx, admissionKey{}, a), grpcconn.Client{Name: client, Streams: a.streaming, Ended: release})
	if err != nil {
		release()
		return ctx, refusal(err)
	}
	return opened, nil
}

// isStreaming reports whether a call of the method may have several messages in one direction.
func (s *Server) isStreaming(method string) bool {
	if streaming, ok := s.own[method]; ok {
		return streaming
	}
	return s.streaming(method)
}

// hostOf returns the peer's address without its port. Of an IPv6 address it is the network of a
// site, of which one client may have all addresses.
func hostOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return host
	case addr.Unmap().IsLoopback():
		return "loopback" // a program of this machine may use any of these addresses
	case addr.Unmap().Is4():
		return addr.Unmap().String()
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return host
	}
	return network.String()
}

// serveStream is the server's interceptor: it runs the handlers of all calls with several messages,
// and of all that the server passes on.
func serveStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return grpcconn.Serve(stream, func(s *grpcconn.Stream) error { return handle(srv, s) })
}

// serverCodec is rawCodec for messages that are counted.
type serverCodec struct {
	rawCodec
	decompressor *inflate.Decompressor
}

// Unmarshal implements encoding.CodecV2. Of a message of the handler the bytes count until it is
// freed; small ones are not counted.
func (c serverCodec) Unmarshal(data mem.BufferSlice, v any) error {
	wire := grpcconn.TakeInflated(c.decompressor, data)
	m, ok := v.(*grpcconn.Message)
	if !ok {
		return c.rawCodec.Unmarshal(data, v)
	}
	size := int64(data.Len())
	if size <= grpcconn.FreeBytes {
		size = 0
	}
	if !m.Deliver(wire, size) {
		return nil
	}
	if err := c.rawCodec.Unmarshal(data, m.Into); err != nil || size == 0 {
		return err
	}
	if received, ok := m.Into.(*call.Message); ok {
		freeWith(received, func() { m.Free(size) })
	} else {
		m.Free(size)
	}
	return nil
}

// freeWith has f called when the message is freed.
func freeWith(m *call.Message, f func()) {
	free := m.Release
	m.Release = func() {
		if free != nil {
			free()
		}
		f()
	}
}

// countedSize returns the bytes of a response that count until it is sent.
func countedSize(m *call.Message) int64 {
	data, err := m.Bytes()
	if err != nil || len(data) <= grpcconn.FreeBytes { // the codec returns the error
		return 0
	}
	return int64(len(data))
}
