package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A leaseNode is a node that sends the events of a channel to whoever requests leases. The end of
// the channel ends the response; ended is closed when the requester has gone.
type leaseNode struct {
	events chan client.LeaseEvent
	ended  chan struct{}
}

func serveLeases(t *testing.T) (*client.Client, leaseNode) {
	n := leaseNode{make(chan client.LeaseEvent, 8), make(chan struct{})}
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(n.ended)
		_, _ = io.Copy(io.Discard, r.Body) // then the server notices that the requester has gone
		for {
			select {
			case e, ok := <-n.events:
				if !ok {
					return
				}
				_ = json.NewEncoder(w).Encode(e)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})), n
}

func grant(claim string) *client.Grant {
	return &client.Grant{
		Leases:      []client.Granted{{Lease: outboard.Lease{Grant: outboard.Grant{Lease: "l1"}, Device: "harbour/opencl/0"}, Claim: []byte(claim)}},
		Credentials: &client.Credentials{Key: []byte("key of " + claim)},
	}
}

// A request waits in the queue until it has leases, which Close gives back.
func TestAcquire(t *testing.T) {
	c, n := serveLeases(t)
	n.events <- client.LeaseEvent{Waiting: &client.Waiting{Position: 2}}
	n.events <- client.LeaseEvent{Waiting: &client.Waiting{Position: 1}}
	n.events <- client.LeaseEvent{Granted: grant("first")}
	var positions []int
	h, err := c.Acquire(t.Context(), client.LeaseRequest{}, func(w client.Waiting) { positions = append(positions, w.Position) })
	if err != nil {
		t.Fatal(err)
	}
	if len(positions) != 2 || positions[0] != 2 || positions[1] != 1 {
		t.Errorf("the positions in the queue were %v", positions)
	}
	if l := h.Leases(); len(l) != 1 || string(l[0].Claim) != "first" || string(h.Credentials().Key) != "key of first" {
		t.Errorf("the leases are %+v, the credentials %+v", l, h.Credentials())
	}
	if err := errors.Join(h.Close(), h.Err()); err != nil {
		t.Errorf("Close: %v", err)
	}
	<-h.Done()
	<-n.ended
}

// The context of Acquire ends the waiting, and not the leases.
func TestAcquireOutlivesItsContext(t *testing.T) {
	c, n := serveLeases(t)
	ctx, cancel := context.WithCancel(t.Context())
	n.events <- client.LeaseEvent{Granted: grant("first")}
	h, err := c.Acquire(ctx, client.LeaseRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	n.events <- client.LeaseEvent{Renewed: grant("second")}
	n.events <- client.LeaseEvent{Lost: &client.Lost{Lease: "l1", Reason: client.Failure{Kind: outboard.LeaseLost, Text: "node harbour has left"}}}
	<-h.Done()
	if got := string(h.Leases()[0].Claim); got != "second" {
		t.Errorf("after the renewal the claim is %q", got)
	}
	if outboard.KindOf(h.Err()) != outboard.LeaseLost || h.Err().Error() != "node harbour has left" {
		t.Errorf("the leases ended with %v", h.Err())
	}
	if err := h.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestAcquireEnds(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		c, n := serveLeases(t)
		n.events <- client.LeaseEvent{Failed: client.FailureOf(outboard.Errorf(outboard.Busy, "", "all devices are leased"))}
		if _, err := c.Acquire(t.Context(), client.LeaseRequest{NoWait: true}, nil); outboard.KindOf(err) != outboard.Busy {
			t.Errorf("the error is %v", err)
		}
		<-n.ended
	})
	t.Run("interrupted in the queue", func(t *testing.T) {
		c, n := serveLeases(t)
		ctx, cancel := context.WithCancel(t.Context())
		n.events <- client.LeaseEvent{Waiting: &client.Waiting{Position: 1}}
		if _, err := c.Acquire(ctx, client.LeaseRequest{}, func(client.Waiting) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		<-n.ended
	})
	t.Run("the node ends", func(t *testing.T) {
		c, n := serveLeases(t)
		n.events <- client.LeaseEvent{Granted: grant("first")}
		h, err := c.Acquire(t.Context(), client.LeaseRequest{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		close(n.events)
		<-h.Done()
		if outboard.KindOf(h.Err()) != outboard.LeaseLost {
			t.Errorf("the leases ended with %v", h.Err())
		}
		_ = h.Close()
	})
}
