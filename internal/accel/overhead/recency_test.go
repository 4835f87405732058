package overhead

import (
	"testing"
	"time"
)

// A program may use any number of threads, queues and processes one after the other. Each process opens a
// session.
func TestManyShortUses(t *testing.T) {
	const pieces = 3 * maxQueues
	predicted := func(change func(r *recording, record, piece int)) time.Duration {
		p := newProgram()
		for range pieces {
			p.launch(100*time.Microsecond, 50*time.Microsecond)
			p.finish(0)
		}
		r := p.exit(0)
		for i := range r.records {
			change(r, i, i/2)
		}
		return predictOne(t, r, Link{RTT: time.Millisecond}, Options{Constants: DefaultConstants()})
	}
	want := predicted(func(*recording, int, int) {})
	for name, change := range map[string]func(r *recording, record, piece int){
		"queues": func(r *recording, record, piece int) { r.records[record].Queue = queueID + uint64(piece) },
		"unordered": func(r *recording, record, piece int) {
			r.records[record].Queue, r.records[record].OutOfOrder = queueID+uint64(piece), true
		},
		"threads": func(r *recording, record, piece int) {
			x := &r.records[record]
			x.Thread = uint32(piece)
			if record%2 == 0 {
				x.Gap = x.Begin // since the program's start
			}
		},
		"processes": func(r *recording, record, piece int) {
			x := &r.records[record]
			x.Process = uint32(piece)
			if record%2 == 0 {
				x.Gap = x.Begin
			}
		},
	} {
		want := want
		if c := DefaultConstants(); name == "processes" {
			want += (pieces - 1) * (c.Open + time.Duration(c.OpenTrips)*time.Millisecond)
		}
		within(t, name, predicted(change), want, want/50)
	}
}
