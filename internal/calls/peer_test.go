package calls

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/fabric/remote"
)

// Calls that need the same connection await one attempt to make it, each until its own context
// ends: one with a short deadline does not wait for the attempt of another.
func TestOneAttemptToConnect(t *testing.T) {
	life := newLifetime()
	dialing, refuse := make(chan struct{}), make(chan struct{})
	p := newPeer("node buoy", life, func(ctx context.Context) (*remote.Conn, error) {
		close(dialing) // panics at a second attempt
		select {
		case <-refuse:
			return nil, errors.New("refused")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	patient := make(chan error, 1)
	go func() {
		_, err := p.connect(t.Context())
		patient <- err
	}()
	<-dialing
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.connect(ctx); err == nil || err.Error() != "node buoy: context canceled" || status.Code(err) != codes.Canceled || !unsent(err) {
		t.Errorf("the call that gave up got %v, of code %v", err, status.Code(err))
	}
	ctx, cancel = context.WithTimeout(t.Context(), 0)
	defer cancel()
	if _, err := p.connect(ctx); status.Code(err) != codes.DeadlineExceeded || !unsent(err) {
		t.Errorf("the call whose deadline passed got %v, of code %v", err, status.Code(err))
	}
	close(refuse)
	if err := <-patient; err == nil || err.Error() != "node buoy: refused" || status.Code(err) != codes.Unavailable {
		t.Errorf("the call that waited got %v", err)
	}
	life.cancel()
	life.running.Wait()
}
