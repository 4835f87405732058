package overhead

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The parts of one thread add up to the whole prediction, and to the recorded time.
func TestPartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, link := drawProgram(t), drawLink(t)
		o := Options{Constants: DefaultConstants()}
		parts, err := Attribute(r.open, link, o)
		if err != nil {
			t.Fatal(err)
		}
		var recorded, predicted time.Duration
		for _, p := range parts {
			recorded, predicted = recorded+p.Recorded, predicted+p.Predicted
		}
		last := r.records[len(r.records)-1].End
		exit := time.Duration(r.end.Duration - last)
		if d := predictOne(t, r, link, o) - exit - predicted; d > time.Microsecond || d < -time.Microsecond {
			t.Fatalf("the parts differ from the prediction by %v: %+v", d, parts)
		}
		if recorded != time.Duration(last) {
			t.Fatalf("the recorded parts are %v, the calls end at %v: %+v", recorded, time.Duration(last), parts)
		}
	})
}

// Each call counts for its kind, and a longer round trip only for waits and transfers.
func TestPartsNameTheKindsOfCalls(t *testing.T) {
	p := newProgram()
	p.info(0)
	p.write(1<<20, time.Millisecond, 0)
	p.read(1<<20, 0, 0)
	p.finish(0)
	p.launch(0, 0)
	near, err := Attribute(p.exit(0).open, Link{}, Options{Constants: zero()})
	if err != nil {
		t.Fatal(err)
	}
	far, err := Attribute(p.open, Link{RTT: 10 * time.Millisecond}, Options{Constants: zero()})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[Kind]int{Start: 1, Downloads: 1, Uploads: 1, Others: 1, Waits: 1, Program: 4}
	for i, part := range near {
		if part.Kind != Kind(i) || part.Calls != calls[part.Kind] {
			t.Errorf("%s: %+v, want %d calls", Kind(i), part, calls[Kind(i)])
		}
		longer := far[i].Predicted - part.Predicted
		if want := part.Kind == Downloads; (longer >= 10*time.Millisecond) != want {
			t.Errorf("%s: 10 ms more of round trip make it %v longer", part.Kind, longer)
		}
	}
}
