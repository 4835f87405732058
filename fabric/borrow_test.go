package fabric

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// dialBorrowed is shared memory with handlers that read there.
func dialBorrowed(t testing.TB, register func(grpc.ServiceRegistrar), o sides) grpc.ClientConnInterface {
	t.Helper()
	o.fabric = append([]Option{WithBorrowedRequests()}, o.fabric...)
	return dialSharedMemory(t, register, o)
}

// handler is the test service with one method.
type handler struct {
	testgrpc.UnimplementedTestServiceServer
	do func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error)
}

func (h handler) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return h.do(ctx, in)
}

// sendBack answers with the request's own bytes.
func sendBack(_ context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: in.GetPayload()}, nil
}

func borrowing(t *testing.T, do func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error), opts ...Option) testgrpc.TestServiceClient {
	t.Helper()
	register := func(r grpc.ServiceRegistrar) { testgrpc.RegisterTestServiceServer(r, handler{do: do}) }
	return testgrpc.NewTestServiceClient(dialBorrowed(t, register, sides{fabric: opts}))
}

const bodySize = 256 << 10

func body(mark byte) *testgrpc.SimpleRequest {
	return &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: bytes.Repeat([]byte{mark}, bodySize)}}
}

// echoed makes a call and looks at the answer.
func echoed(t *testing.T, c testgrpc.TestServiceClient, in *testgrpc.SimpleRequest, opts ...grpc.CallOption) {
	t.Helper()
	out, err := c.UnaryCall(t.Context(), in, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.GetPayload().GetBody(), in.GetPayload().GetBody()) {
		t.Fatal("another answer than wanted")
	}
}

// allocated is how many bytes this process allocates for a call: both sides are in it.
func allocated(t *testing.T, c testgrpc.TestServiceClient, opts ...grpc.CallOption) int {
	t.Helper()
	const calls = 20
	in := body(1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		echoed(t, c, in, opts...)
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / calls
}

// TestBorrowedBytesAreNotCopied counts what calls allocate, for more bytes than the
// heap has: its room comes back.
func TestBorrowedBytesAreNotCopied(t *testing.T) {
	c := borrowing(t, sendBack)
	var loan Loan
	defer loan.Release()
	in := body(2)
	for range 80 {
		echoed(t, c, in, WithBorrowedResponse(&loan))
	}
	if n := allocated(t, c, WithBorrowedResponse(&loan)); n > bodySize/4 {
		t.Errorf("%d bytes for a call that borrows both ways", n)
	}
	if n := allocated(t, c); n < bodySize || n > 3*bodySize/2 {
		t.Errorf("%d bytes for a call that borrows its request", n)
	}
}

// TestBorrowedBytesStay while their handler is at work, whatever other calls do.
func TestBorrowedBytesStay(t *testing.T) {
	seen, enough := make(chan struct{}), make(chan struct{})
	c := borrowing(t, func(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		if in.GetPayload().GetBody()[0] == 7 {
			close(seen)
			<-enough
		}
		return sendBack(ctx, in)
	})
	held := make(chan bool, 1)
	go func() {
		out, err := c.UnaryCall(context.WithoutCancel(t.Context()), body(7))
		held <- err == nil && bytes.Equal(out.GetPayload().GetBody(), body(7).GetPayload().GetBody())
	}()
	<-seen
	for range 50 {
		echoed(t, c, body(8))
	}
	close(enough)
	if !<-held {
		t.Error("the bytes were changed")
	}
}

// TestBorrowedRequestEndsWithItsHandler: what a handler does that fails, or panics and is
// caught, gives the room back like any other.
func TestBorrowedRequestEndsWithItsHandler(t *testing.T) {
	var fails, panics atomic.Bool
	c := borrowing(t, func(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		switch {
		case fails.Load():
			return nil, status.Error(codes.Aborted, "no")
		case panics.Load():
			panic("on purpose")
		}
		return sendBack(ctx, in)
	}, WithUnaryServerInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (out any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = status.Error(codes.DataLoss, "panic")
			}
		}()
		return h(ctx, in)
	}))
	for flag, want := range map[*atomic.Bool]codes.Code{&fails: codes.Aborted, &panics: codes.DataLoss} {
		flag.Store(true)
		for range 80 {
			if _, err := c.UnaryCall(t.Context(), body(3)); status.Code(err) != want {
				t.Fatalf("%v: want %v", err, want)
			}
		}
		flag.Store(false)
	}
	var loan Loan
	if n := allocated(t, c, WithBorrowedResponse(&loan)); n > bodySize/4 {
		t.Errorf("%d bytes for a call: room was lost", n)
	}
	loan.Release()
}

// TestBorrowedBytesOutliveTheConnection: a handler that is still at work when its
// caller has gone reads what it was sent.
func TestBorrowedBytesOutliveTheConnection(t *testing.T) {
	before := regions(t)
	seen, gone, result := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	register := func(r grpc.ServiceRegistrar) {
		testgrpc.RegisterTestServiceServer(r, handler{do: func(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			close(seen)
			<-ctx.Done()
			<-gone
			result <- bytes.Equal(in.GetPayload().GetBody(), body(4).GetPayload().GetBody())
			return nil, ctx.Err()
		}})
	}
	conn, ok := dialBorrowed(t, register, sides{}).(*ClientConn)
	if !ok {
		t.Fatal("another kind of connection")
	}
	failed := make(chan error, 1)
	go func() {
		_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(t.Context(), body(4))
		failed <- err
	}()
	<-seen
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("a call on a closed connection went well")
	}
	mapped(t, before+1) // the handler's
	close(gone)
	if !<-result {
		t.Error("the bytes were changed")
	}
	mapped(t, before)
}

// regions is how many are mapped.
func regions(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Error(err)
	}
	return bytes.Count(maps, []byte("memfd:outboard-calls"))
}

// mapped waits until so many are.
func mapped(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; runtime.Gosched() {
		n := regions(t)
		if n == want {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%d regions are mapped: want %d", n, want)
			return
		}
	}
}

// TestLoan: a loan holds one response at a time, and one that nobody releases costs room,
// but no call.
func TestLoan(t *testing.T) {
	c := borrowing(t, sendBack)
	loans := make([]Loan, 80) // more than the heap has room for
	answers := make([]*testgrpc.SimpleResponse, len(loans))
	for i := range loans {
		var err error
		if answers[i], err = c.UnaryCall(t.Context(), body(byte(i)), WithBorrowedResponse(&loans[i])); err != nil {
			t.Fatal(err)
		}
	}
	for i, out := range answers {
		if !bytes.Equal(out.GetPayload().GetBody(), body(byte(i)).GetPayload().GetBody()) {
			t.Fatalf("answer %d was changed", i)
		}
		loans[i].Release()
		loans[i].Release()
	}
	if n := allocated(t, c, WithBorrowedResponse(&loans[0])); n > bodySize/4 {
		t.Errorf("%d bytes for a call after all loans were released", n)
	}
	loans[0].Release()
}

// TestLoanOfCallsThatFail holds nothing.
func TestLoanOfCallsThatFail(t *testing.T) {
	c := borrowing(t, sendBack)
	var loan Loan
	echoed(t, c, body(5), WithBorrowedResponse(&loan))
	if loan.held == nil {
		t.Fatal("nothing was borrowed")
	}
	_, err := c.UnaryCall(t.Context(), body(5), WithBorrowedResponse(&loan), grpc.MaxCallRecvMsgSize(1000))
	if status.Code(err) != codes.ResourceExhausted || loan.held != nil {
		t.Errorf("%v, held %v", err, loan.held)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := c.UnaryCall(ctx, body(5), WithBorrowedResponse(&loan)); !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	for name, p := range pairings() { // other ways copy
		if name == "grpc-go" || name == "grpc-go to us" {
			continue
		}
		conn := p.dial(t, func(r grpc.ServiceRegistrar) { testgrpc.RegisterTestServiceServer(r, handler{do: sendBack}) }, sides{})
		echoed(t, testgrpc.NewTestServiceClient(conn), body(6), WithBorrowedResponse(&loan))
	}
	loan.Release()
}
