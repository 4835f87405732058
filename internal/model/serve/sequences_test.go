package serve_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// inferIn executes a request of a sequence of the client "a", whose id may be followed by "start"
// and "end", and returns the letter of the version that answers.
func (b *bench) inferIn(id string) (string, error) {
	r := b.request(0)
	name, _, _ := strings.Cut(id, " ")
	r.Sequence = serve.Sequence{ID: name, Client: "a", Start: strings.Contains(id, "start"), End: strings.Contains(id, "end")}
	response, err := b.Infer(b.t.Context(), r)
	if err != nil {
		return "", err
	}
	if len(response.Outputs) == 0 {
		return string(response.Node), nil
	}
	return string(response.Outputs[0].Data), nil
}

// A sequence stays with the process that executed its first request, also beside a version that has
// replaced it, until it ends.
func TestSequenceStaysOnItsInstance(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	in := func(id, want string) {
		t.Helper()
		if got, err := b.inferIn(id); err != nil || got != want {
			t.Errorf("%s: %q, %v: want %q", id, got, err, want)
		}
	}
	none := func(id string) {
		t.Helper()
		if _, err := b.inferIn(id); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("%s: %v", id, err)
		}
	}
	none("1")
	in("1 start", "a")
	in("2 start", "a")
	b.push("b", repository.Config{})
	if err := b.Load(t.Context(), "m", ""); err != nil {
		t.Fatal(err)
	}
	b.want("b2")
	in("1", "a")
	in("3 start end", "b")
	none("3")
	in("1 end", "a")
	none("1")
	in("2", "a")
	in("2 start", "b")
	in("2", "b")
}

// An engine that holds state gets the sequence of each request, by a number that no other has; requests
// of no sequence are executed as such.
func TestEngineGetsTheSequence(t *testing.T) {
	b := open(t)
	b.push("stateful", repository.Config{})
	for _, id := range []string{"1 start", "2 start", "1", "2 end", "1 start end"} {
		if _, err := b.inferIn(id); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	b.want("s1")
	got := b.engine.requestsOfSequences()
	if len(got) != 5 {
		t.Fatalf("%d requests of sequences: %+v", len(got), got)
	}
	one, two, again := got[0].Number, got[1].Number, got[4].Number
	want := []model.Sequence{{Number: one, Start: true}, {Number: two, Start: true}, {Number: one}, {Number: two, End: true}, {Number: again, Start: true, End: true}}
	if diff := cmp.Diff(want, got); diff != "" || one == two || again == one || again == two || min(one, two, again) <= 0 {
		t.Errorf("%+v %s", got, diff)
	}
}

// Another client's sequence of the same name is another one.
func TestSequencesOfClientsAreApart(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	if _, err := b.inferIn("1 start"); err != nil {
		t.Fatal(err)
	}
	r := b.request(0)
	r.Sequence = serve.Sequence{ID: "1", Client: "b"}
	if _, err := b.Infer(t.Context(), r); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("another client's request: %v", err)
	}
}

// A sequence whose process has ended is lost. Its client may start it again, and others start: the
// process is started again for them.
func TestSequenceAfterACrash(t *testing.T) {
	b, l := openObserved(t)
	close(l.next)
	v := b.push("stateful", repository.Config{})
	if _, err := b.inferIn("1 start"); err != nil {
		t.Fatal(err)
	}
	l.first.Kill()
	for b.Explain(&v)[0].State == serve.StateReady {
		<-time.After(time.Millisecond)
	}
	if _, err := b.inferIn("1"); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("the state is gone: %v", err)
	}
	for _, id := range []string{"1 start", "1 end", "2 start end"} {
		if got, err := b.inferIn(id); err != nil || got != "s" {
			t.Errorf("%s: %q, %v", id, got, err)
		}
	}
}

// A client cannot take the sequences of all.
func TestSequencesAreBounded(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	var err error
	begun := 0
	for ; err == nil && begun < 5000; begun++ {
		r := b.request(0)
		r.Sequence = serve.Sequence{ID: string(rune('a' + begun)), Client: "a", Start: true}
		_, err = b.Infer(t.Context(), r)
	}
	if outboard.KindOf(err) != outboard.Exhausted || begun != 1025 {
		t.Errorf("sequence %d: %v", begun, err)
	}
	r := b.request(0)
	r.Sequence = serve.Sequence{ID: "1", Client: "b", Start: true}
	if _, err := b.Infer(t.Context(), r); err != nil {
		t.Errorf("another client's sequence: %v", err)
	}
}

// A sequence stays on the node that executed its first request: no other has its state.
func TestSequenceStaysOnItsNode(t *testing.T) {
	b := open(t)
	lost := outboard.Errorf(outboard.Unreachable, "", "lost")
	b.peers.report(serve.Report{Node: "dinghy"}, serve.Report{Node: "tender"})
	b.peers.fail = map[outboard.NodeID]error{"dinghy": lost}
	b.push("a", repository.Config{Nodes: []string{"dinghy", "tender"}})
	if node, err := b.inferIn("1 start"); err != nil || node != "tender" {
		t.Fatalf("the first request: %q, %v", node, err)
	}
	b.peers.fail["dinghy"] = nil
	for range 5 {
		if node, err := b.inferIn("1"); err != nil || node != "tender" {
			t.Errorf("a later request: %q, %v", node, err)
		}
	}
	b.peers.fail["tender"], b.peers.asked = lost, nil
	if _, err := b.inferIn("1"); outboard.KindOf(err) != outboard.Unreachable || len(b.peers.asked) != 1 {
		t.Errorf("without its node: %v after %v", err, b.peers.asked)
	}
	if node, err := b.inferIn("1 start"); err != nil || node != "dinghy" {
		t.Errorf("started anew: %q, %v", node, err)
	}
}
