package serve_test

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// waitForQueue waits until n requests of the model m wait.
func (b *bench) waitForQueue(n int) {
	b.t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		for _, s := range b.Stats() {
			if s.Name == "m" && s.Waiting == n {
				return
			}
		}
		if time.Now().After(limit) {
			b.t.Fatalf("%+v: want %d waiting", b.Stats(), n)
		}
	}
}

// refused returns the counts of the model m.
func (b *bench) refused() (full, late uint64) {
	for _, s := range b.Stats() {
		full, late = full+s.RefusedFull, late+s.RefusedDeadline
	}
	return full, late
}

// A request is refused before its tensors come if the queue of the only node is full, and the
// refusal is counted.
func TestRefuseBeforeTheTensors(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{Queue: repository.Queue{Size: 1}})
	b.want("a1")
	r := &serve.Request{Model: "m"}
	for _, rows := range []int{0, 1} {
		if err := b.Refuse(r, rows); err != nil {
			t.Fatalf("an empty queue: %v", err)
		}
	}
	done := make(chan error, 2)
	for n := range 2 { // one is executed, the other waits
		go func() {
			_, err := b.infer(1)
			done <- err
		}()
		if n == 0 {
			<-b.engine.started
		}
	}
	b.waitForQueue(1)
	for _, rows := range []int{0, 1} {
		if err := b.Refuse(r, rows); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("a full queue, %d rows: %v", rows, err)
		}
	}
	if full, late := b.refused(); full != 2 || late != 0 {
		t.Errorf("%d and %d refusals are counted", full, late)
	}
	ofSequence := *r
	ofSequence.Sequence.ID = "1"
	if err := b.Refuse(&ofSequence, 1); err != nil {
		t.Errorf("a sequence, which may be on another node: %v", err)
	}
	if err := b.Refuse(&serve.Request{Model: "none"}, 0); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("no such model: %v", err)
	}
	close(b.engine.proceed)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
