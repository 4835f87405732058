package router

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// lateContext is a context whose deadline passes without notice to those derived from it.
type lateContext struct {
	context.Context //nolint:containedctx // it is one
	late            atomic.Bool
}

func (c *lateContext) Err() error {
	if c.late.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// lateStream is a call whose caller reaches its deadline while the call waits for its messages.
type lateStream struct {
	call.ServerStream
	ctx lateContext
}

func (s *lateStream) Context() context.Context { return &s.ctx }

func (s *lateStream) Head() *call.Head {
	return &call.Head{Method: "/shop.Search/Watch", Streaming: true}
}

func (s *lateStream) Recv() (*call.Message, error) {
	s.ctx.late.Store(true)
	return nil, context.DeadlineExceeded
}

func (s *lateStream) SetTrailer(metadata.MD) {}

// The router reads the deadline of a caller from its messages before its own context has ended.
func TestDeadlineIsNoCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(s call.ServerStream) error {
			<-s.Context().Done()
			return s.Context().Err()
		})
		err := forwarding(t, "", f).Serve(&lateStream{ctx: lateContext{Context: context.Background()}})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v, want that the deadline has passed", err)
		}
		if f.opened.Load() != 1 {
			t.Error("the callee has not seen the call")
		}
	})
}
