package worker

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A process that could not send tokens ends, so that the node starts another one: it would refuse all
// later generations.
func TestProcessEndsWithoutItsTokens(t *testing.T) {
	opts := processOptions()
	if opts.WriteTimeout >= 0 {
		t.Errorf("a node that is stopped loses messages after %v", opts.WriteTimeout)
	}
	opts.WriteTimeout = time.Nanosecond
	conn, peer, err := ipc.Pair(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
	out := outbox{conn: conn}
	for out.add(1, engine.Token{Text: "x"}) == nil && out.flush() == nil { // until the socket is full
	}
	select {
	case <-conn.Done():
	default:
		t.Error("the connection goes on")
	}
}
