package overhead

import (
	"testing"
	"time"
)

// What fits into a token bucket passes at once after a pause that fills it; in the long run the rate
// holds. A bucket of any size is never slower than the wire of the same rate.
func TestTokenBucket(t *testing.T) {
	const rate = 8e6 // a byte takes a microsecond
	o := Options{Constants: zero()}
	took := func(messages int, gap time.Duration, burst int64, rate float64) time.Duration {
		p := newProgram()
		for range messages {
			p.launch(gap, 0)
			p.records[len(p.records)-1].Forward = 400
		}
		p.finish(0)
		r := p.exit(0)
		return predictOne(t, r, Link{Up: rate, Down: rate, Burst: burst}, o) - predictOne(t, r, Link{}, o)
	}
	const us = time.Microsecond
	within(t, "messages that fit into the bucket", took(10, time.Millisecond, 4096, rate), 0, us)
	within(t, "the same over a wire", took(1, time.Millisecond, 0, rate), 560*us, 5*us)
	within(t, "100 messages at once", took(100, 0, 4096, rate), (100*400+80-4096)*us, 300*us) // the program takes 200 us meanwhile
	if wire, bucket := took(100, 100*us, 0, rate), took(100, 100*us, 1000, rate); bucket > wire || wire-bucket > 1100*us {
		t.Errorf("%v over a bucket of 1,000 bytes, %v over the wire", bucket, wire)
	}
	for _, l := range []Link{{Burst: 4096}, {Burst: -1, Up: rate, Down: rate}, {Burst: maxBurst + 1, Up: rate, Down: rate}} {
		if l.validate() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

// Large messages, which are sent in steps, keep the rate of the bucket, and links without one are not
// delayed beside one that has it.
func TestTokenBucketOfLargeMessages(t *testing.T) {
	p := newProgram()
	p.write(1<<20, 0, 0)
	p.finish(0)
	r := p.exit(0)
	links := []Link{{Up: 1e9, Down: 1e9, Burst: 16 << 10}, {Up: 1e9, Down: 1e9}, {}}
	got, err := Predict(r.open, links, Options{Constants: zero()})
	if err != nil {
		t.Fatal(err)
	}
	alone, err := Predict(r.open, links[1:], Options{Constants: zero()})
	if err != nil {
		t.Fatal(err)
	}
	if got[1].Wall != alone[0].Wall || got[2].Wall != alone[1].Wall {
		t.Errorf("beside a bucket %v and %v, alone %v and %v", got[1].Wall, got[2].Wall, alone[0].Wall, alone[1].Wall)
	}
	within(t, "a bucket against a wire", got[1].Wall-got[0].Wall, time.Duration(16<<10)*8*time.Nanosecond, 10*time.Microsecond)
}
