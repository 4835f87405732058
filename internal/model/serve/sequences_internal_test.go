package serve

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// A sequence whose client is gone is forgotten, but not while one of its requests is executed.
func TestIdleSequencesEnd(t *testing.T) {
	var s sequences
	open := func(id string, start bool) (*sequence, error) {
		return s.open(&Request{Model: "m", Sequence: Sequence{ID: id, Start: start}})
	}
	if _, err := open("idle", true); err != nil {
		t.Fatal(err)
	}
	busy, err := open("busy", true)
	if err != nil {
		t.Fatal(err)
	}
	busy.turn <- struct{}{}
	s.endIdle(time.Now().Add(-sequenceIdle))
	if len(s.all) != 2 {
		t.Errorf("%d sequences are left of 2 that are not idle", len(s.all))
	}
	s.endIdle(time.Now().Add(time.Hour))
	if _, err := open("idle", false); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("an idle sequence: %v", err)
	}
	if _, err := open("busy", false); err != nil {
		t.Errorf("a sequence in use: %v", err)
	}
	<-busy.turn
	s.endIdle(time.Now().Add(time.Hour))
	if len(s.all) != 0 || len(s.used) != 0 || len(s.clients) != 0 {
		t.Errorf("%d, %d and %d entries are left", len(s.all), len(s.used), len(s.clients))
	}
}
