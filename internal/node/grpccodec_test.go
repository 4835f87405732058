package node

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// zipped calls Echo with n zeros, which it compresses to about a thousandth.
func zipped(t *testing.T, conn *grpc.ClientConn, n int) error {
	t.Helper()
	got := new(wrapperspb.BytesValue)
	err := conn.Invoke(t.Context(), "/test.Echo/Echo", wrapperspb.Bytes(make([]byte, n)), got, grpc.UseCompressor(gzip.Name))
	if err == nil && len(got.GetValue()) != n {
		t.Errorf("%d bytes came back as %d", n, len(got.GetValue()))
	}
	return err
}

// Compressed messages count with the bytes that they have when they are decompressed, while that goes
// on, too.
func TestCompressedMessagesAreCounted(t *testing.T) {
	p := openEcho(t, time.Minute, admitAll)
	conn := p.dial(t)
	for _, n := range []int{0, 1, freeBody, 3 << 20} {
		if err := zipped(t, conn, n); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	p.expectHeld(t, 0)
	inflating := p.bodies.Inflating()
	for name, budget := range map[string]struct {
		reserve func(int64) error
		release func(int64)
		code    codes.Code
	}{
		"the client": {
			func(n int64) error { return p.bodies.Reserve("client", n) }, func(n int64) { p.bodies.Release("client", n) },
			codes.ResourceExhausted,
		},
		"decompression": {inflating.Reserve, inflating.Release, codes.Internal},
	} {
		if err := budget.reserve(maxClientBodies - 2*freeBody); err != nil {
			t.Fatal(err)
		}
		if err := zipped(t, conn, 3<<20); status.Code(err) != budget.code {
			t.Errorf("%s has no bytes left, and a message of 3 MiB is received: %v", name, err)
		}
		if err := zipped(t, conn, freeBody/2); err != nil {
			t.Errorf("%s has no bytes left, and a small message is refused: %v", name, err)
		}
		budget.release(maxClientBodies - 2*freeBody)
	}
	if err := zipped(t, conn, maxModelMessage); err == nil {
		t.Error("a message that is too long when it is decompressed is received")
	}
	p.awaitNothingHeld(t) // grpc-go sends that status before the call has ended
}

// awaitNothingHeld waits until no call holds bytes.
func (p *echoPort) awaitNothingHeld(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		held := p.bodies.Held()
		if held == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d bytes are held", held)
		}
	}
}

// The messages of a stream may be compressed.
func TestCompressedStream(t *testing.T) {
	p := openEcho(t, time.Minute, admitAll)
	stream, err := p.dial(t).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/Echoes", grpc.UseCompressor(gzip.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 1 << 20, 3 << 20} {
		got := new(wrapperspb.BytesValue)
		if err := stream.SendMsg(wrapperspb.Bytes(make([]byte, n))); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(got); err != nil || len(got.GetValue()) != n {
			t.Fatalf("%d bytes: %d, %v", n, len(got.GetValue()), err)
		}
		p.expectHeld(t, 0)
	}
}
