// Command caller is a program of the tests that serves or makes calls through a
// node: `caller serve`, or `caller load -for 5s`, which says in JSON what became of
// its calls.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "caller:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "serve":
		return serve(ctx)
	case len(args) > 0 && args[0] == "load":
		return load(ctx, args[1:])
	}
	return errors.New("serve or load?")
}

// echo answers with what it was sent.
type echo struct{ testgrpc.TestServiceServer }

func (echo) UnaryCall(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (echo) FullDuplexCall(s testgrpc.TestService_FullDuplexCallServer) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testgrpc.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

func serve(ctx context.Context) error {
	l, err := fabric.Listen("node:")
	if err != nil {
		return err
	}
	s := fabric.NewServer()
	testgrpc.RegisterTestServiceServer(s, echo{interop.NewTestServer()})
	return s.Run(ctx, l)
}

// outcome is what became of the calls.
type outcome struct {
	// Good calls had the right answer, Wrong ones another; Failed counts by code.
	Good, Wrong, Messages int64
	Failed                map[string]int64
	mu                    sync.Mutex
}

func (o *outcome) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Failed[status.Code(err).String()]++
}

type options struct {
	plain            string
	calls, streams   int
	size             int
	long             time.Duration
	good, wrong, msg atomic.Int64
}

func load(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&o.plain, "grpc", "", "speak plain gRPC to this address")
	flags.IntVar(&o.calls, "calls", 4, "how many make unary calls at once")
	flags.IntVar(&o.streams, "streams", 2, "how many streams go on at once")
	flags.IntVar(&o.size, "size", 64, "bytes of a message")
	flags.DurationVar(&o.long, "for", time.Second, "for how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := dial(o.plain)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, o.long)
	defer cancel()
	result := o.work(ctx, testgrpc.NewTestServiceClient(conn))
	return json.NewEncoder(os.Stdout).Encode(result)
}

type connection interface {
	grpc.ClientConnInterface
	Close() error
}

func dial(plain string) (connection, error) {
	if plain != "" {
		return grpc.NewClient(plain, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	return fabric.Dial("node:")
}

func (o *options) work(ctx context.Context, c testgrpc.TestServiceClient) *outcome {
	result := &outcome{Failed: map[string]int64{}}
	var all sync.WaitGroup
	for i := range o.calls {
		all.Go(func() { o.repeat(ctx, result, func(n uint64) error { return o.call(ctx, c, uint64(i)<<32|n) }) })
	}
	for range o.streams {
		all.Go(func() { o.repeat(ctx, result, func(uint64) error { return o.stream(ctx, c) }) })
	}
	all.Wait()
	result.Good, result.Wrong, result.Messages = o.good.Load(), o.wrong.Load(), o.msg.Load()
	return result
}

func (o *options) repeat(ctx context.Context, result *outcome, once func(n uint64) error) {
	for n := uint64(0); ctx.Err() == nil; n++ {
		err := once(n)
		if err == nil {
			continue
		}
		result.fail(err)
		if status.Code(err) == codes.Unavailable {
			time.Sleep(5 * time.Millisecond) // nobody serves now
		}
	}
}

func (o *options) payload(n uint64) *testgrpc.Payload {
	body := make([]byte, max(8, o.size))
	binary.LittleEndian.PutUint64(body, n)
	return &testgrpc.Payload{Body: body}
}

func (o *options) check(p *testgrpc.Payload, n uint64) {
	if len(p.GetBody()) != max(8, o.size) || binary.LittleEndian.Uint64(p.GetBody()) != n {
		o.wrong.Add(1)
		return
	}
	o.good.Add(1)
}

// callLimit is how long one call may take.
const callLimit = 10 * time.Second

// call makes one call, which the end of the load does not cut short.
func (o *options) call(ctx context.Context, c testgrpc.TestServiceClient, n uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	r, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: o.payload(n)})
	if err == nil {
		o.check(r.GetPayload(), n)
	}
	return err
}

// stream sends messages, one at a time, until the time is over.
func (o *options) stream(ctx context.Context, c testgrpc.TestServiceClient) error {
	// The stream ends in good order when the load does.
	s, err := c.FullDuplexCall(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	for n := uint64(0); ctx.Err() == nil; n++ {
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: o.payload(n)}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		r, err := s.Recv()
		if err != nil {
			return err
		}
		o.check(r.GetPayload(), n)
		o.msg.Add(1)
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	_, err = s.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("a stream's end: %w", err)
}
