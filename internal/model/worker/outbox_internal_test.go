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
	for out.add(1, engine.Token{Text: "x"}) == nil { // until the socket is full
	}
	select {
	case <-conn.Done():
	default:
		t.Error("the connection goes on")
	}
}

// The tokens of one step of several generations share a message.
func TestStepsShareMessages(t *testing.T) {
	conn, file, err := ipc.Pair(ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ipc.FromFile(file, ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
	m := &steppedModel{}
	out := newTextServer(conn, m).out
	for generation := range uint64(3) {
		if err := out.add(generation, engine.Token{ID: int32(generation)}); err != nil {
			t.Fatal(err)
		}
	}
	m.step()
	received, err := peer.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var tokens tokensMessage
	if err := received.Decode(&tokens); err != nil || len(tokens.Batch) != 3 {
		t.Errorf("the message of a step of 3 generations: %+v, %v", tokens, err)
	}
}

type steppedModel struct {
	engine.SteppedModel
	step func()
}

func (m *steppedModel) AfterSteps(f func()) { m.step = f }
