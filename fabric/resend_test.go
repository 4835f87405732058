package fabric

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// A call that a transport refuses shortly before it reports that it takes no more calls is sent
// again once it has; no other call is.
func TestMayResend(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		closes bool // the link takes no more calls, a second later
		want   bool
	}{
		"unsent":                     {shared.ErrFinished, true, true},
		"unsent, of a link for ever": {shared.ErrFinished, false, false},
		"sent":                       {status.Error(codes.Unavailable, "the peer is gone"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				l := &link{}
				if test.closes {
					done := make(chan struct{})
					l.done = done
					time.AfterFunc(time.Second, func() { close(done) })
				}
				if got := mayResend(ctx, l, test.err); got != test.want {
					t.Errorf("got %v, want %v", got, test.want)
				}
			})
		})
	}
}
