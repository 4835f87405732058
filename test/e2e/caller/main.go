// Command caller is a program of the tests that serves or makes calls through a
// node: `caller serve`, or `caller load -for 5s`, which says in JSON what became of
// its calls.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls/callstest"
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

func serve(ctx context.Context) error {
	l, err := fabric.Listen("node:")
	if err != nil {
		return err
	}
	s := fabric.NewServer()
	testgrpc.RegisterTestServiceServer(s, callstest.Echo{})
	return s.Run(ctx, l)
}

// outcome is what became of the calls.
type outcome struct {
	// Good calls had the right answer, Wrong ones another; Failed counts by code.
	Good, Wrong, Messages int64
	Failed                map[string]int64
	// Causes are the first errors, with their times.
	Causes []string
	mu     sync.Mutex
}

func (o *outcome) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Failed[status.Code(err).String()]++
	if len(o.Causes) < 5 {
		o.Causes = append(o.Causes, time.Now().Format(time.TimeOnly+".000 ")+err.Error())
	}
}

type options struct {
	plain            string
	calls, streams   int
	messages         int
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
	flags.IntVar(&o.messages, "messages", 0, "how many messages a stream has; 0: it lasts as long as the load")
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

// repeat makes calls, or streams, until the time is over: at least one, since on a busy machine the time
// may be over before a goroutine runs.
func (o *options) repeat(ctx context.Context, result *outcome, once func(n uint64) error) {
	for n := uint64(0); n == 0 || ctx.Err() == nil; n++ {
		err := once(n)
		switch {
		case err == nil:
		case errors.Is(err, callstest.ErrWrong):
			o.wrong.Add(1)
		default:
			result.fail(err)
			if status.Code(err) == codes.Unavailable {
				time.Sleep(5 * time.Millisecond) // the service has no endpoint now
			}
		}
	}
}

// callLimit is how long one call may take: far longer than on a busy machine.
const callLimit = 2 * time.Minute

// call makes one call, which the end of the load does not cut short.
func (o *options) call(ctx context.Context, c testgrpc.TestServiceClient, n uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	err := callstest.Call(ctx, c, n, o.size)
	if err == nil {
		o.good.Add(1)
	}
	return err
}

// stream sends messages, one at a time, until it had all or the time is over. It ends in good
// order when the load does.
func (o *options) stream(ctx context.Context, c testgrpc.TestServiceClient) error {
	sent := 0
	more := func() bool { return ctx.Err() == nil && (o.messages == 0 || sent < o.messages) }
	return callstest.Chat(context.WithoutCancel(ctx), c, o.size, more, func() {
		sent++
		o.good.Add(1)
		o.msg.Add(1)
	})
}
