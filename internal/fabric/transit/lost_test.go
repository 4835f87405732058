package transit

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// cut is a leg whose connection is lost when the callee has accepted it.
type cut struct {
	call.ClientStream
	conn *shared.Conn
	// told says that the caller still hears of that.
	told bool
}

func (c *cut) Header() (metadata.MD, error) {
	md, err := c.ClientStream.Header()
	_ = c.conn.Close()
	if c.told {
		return md, err
	}
	return nil, status.Error(codes.Unavailable, "the connection is lost")
}

// A stream whose next leg is lost ends, on both sides: where the caller has heard that
// it was accepted, and where it has not and waits for answers by the old one.
func TestLostOnceAccepted(t *testing.T) {
	for name, told := range map[string]bool{"heard": true, "not heard": false} {
		t.Run(name, func(t *testing.T) {
			var callees Callees
			handled := make(chan error, 1)
			to := listen(t, "server", func(s call.ServerStream) error {
				return callees.Serve(s, func(s call.ServerStream) error {
					err := echo(s)
					handled <- err
					return err
				})
			})
			front, legs := newLine(to), 0
			way := func(ctx context.Context, h *call.Head) (call.ClientStream, *StreamSet, error) {
				if legs++; legs != 2 {
					return front.open(ctx, h)
				}
				conn, err := shared.Dial(ctx, to.path, shared.Options{})
				if err != nil {
					return nil, nil, err
				}
				s, err := conn.Open(ctx, h)
				return &cut{s, conn, told}, new(StreamSet), err
			}
			s, err := Open(t.Context(), &call.Head{Method: "/a/B", Streaming: true}, way)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(message(1, 0)); err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			m.Free()
			front.change()
			if _, err := s.Recv(); err == nil || errors.Is(err, io.EOF) || status.Code(err) != codes.Unavailable {
				t.Errorf("the stream ends with %v", err)
			}
			if err := <-handled; err == nil {
				t.Error("the handler is told that the stream ended well")
			}
		})
	}
}
