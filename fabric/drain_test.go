package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// A server that wants its callers on other connections all the time loses no call
// and ends no stream.
func TestDrainedConnections(t *testing.T) {
	s := NewServer()
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	path := filepath.Join(t.TempDir(), "s")
	l, err := shared.Listen(path, shared.Options{Handler: serverHandler{s}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	conns, done := make(chan *shared.Conn, 1024), make(chan error, 1)
	go func() {
		done <- l.Serve(ctx, func(c *shared.Conn) error {
			conns <- c
			return nil
		})
	}()
	c, err := Dial("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	client := testgrpc.NewTestServiceClient(c)
	const drains, callers = 200, 4
	stop := make(chan struct{})
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			if err := callUntil(stop, client); err != nil {
				t.Error(err)
			}
		})
	}
	var all []*shared.Conn
	for range drains {
		conn := <-conns
		conn.Drain()
		all = append(all, conn)
	}
	close(stop)
	calling.Wait()
	for _, conn := range all {
		<-conn.Done() // the client has left it
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// callUntil makes calls, and ping-pongs on a stream that is longer than a connection
// is wanted.
func callUntil(stop <-chan struct{}, c testgrpc.TestServiceClient) error {
	ctx := context.Background()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if _, err := c.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
			return fmt.Errorf("call %d: %w", n, err)
		}
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			return fmt.Errorf("stream %d: %w", n, err)
		}
		for i := range n % 16 {
			err := s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 9}}})
			if err == nil {
				_, err = s.Recv()
			}
			if err != nil {
				return fmt.Errorf("stream %d, message %d: %w", n, i, err)
			}
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("end of stream %d: %w", n, err)
		}
	}
}

// leaving is a transport that is given up just when a call comes.
type leaving struct {
	done chan struct{}
	once sync.Once
}

func (l *leaving) Open(context.Context, *call.Head) (call.ClientStream, error) {
	l.once.Do(func() { close(l.done) })
	return nil, shared.ErrFinished
}

func (l *leaving) Unary(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error) {
	l.once.Do(func() { close(l.done) })
	return nil, call.End{}, shared.ErrFinished
}

func (*leaving) Close() error { return nil }

// A call that the peer never saw is made on the next connection.
func TestUnsentIsSentAgain(t *testing.T) {
	s := NewServer()
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	path := filepath.Join(t.TempDir(), "s")
	l, err := shared.Listen(path, shared.Options{Handler: serverHandler{s}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, func(*shared.Conn) error { return nil }) }()
	for name, f := range map[string]func(testgrpc.TestServiceClient) error{
		"unary": func(c testgrpc.TestServiceClient) error {
			_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
			return err
		},
		"stream": func(c testgrpc.TestServiceClient) error {
			s, err := c.FullDuplexCall(t.Context())
			if err != nil {
				return err
			}
			if err := s.CloseSend(); err != nil {
				return err
			}
			if _, err := s.Recv(); !errors.Is(err, io.EOF) {
				return fmt.Errorf("end: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			c := newClientConn("", newRedial(func(ctx context.Context) (*link, error) {
				if first {
					first = false
					l := &leaving{done: make(chan struct{})}
					return &link{transport: l, done: l.done}, nil
				}
				conn, err := shared.Dial(ctx, path, shared.Options{})
				if err != nil {
					return nil, err
				}
				return &link{transport: conn, done: conn.Draining()}, nil
			}, onThisMachine()), newOptions(nil))
			defer c.Close()
			if err := f(testgrpc.NewTestServiceClient(c)); err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
