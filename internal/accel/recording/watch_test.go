package recording

import (
	"slices"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// The first poll of an event, or callback for it, sends a message; a notice counts as a wait for the
// event without one. User events are the program's own.
func TestPollsAndCallbacks(t *testing.T) {
	const queue, first, second, user = 0xa0, 0xe0, 0xe8, 0xf0
	launch, poll, callback := op(t, "clEnqueueNDRangeKernel"), op(t, "clGetEventInfo"), op(t, "clSetEventCallback")
	var raws [][]byte
	for i, c := range []rawCall{
		{op: launch, queue: queue, event: first},
		{op: poll, event: first},
		{op: poll, event: first},
		{op: poll, event: first, flags: flagNotice},
		{op: launch, queue: queue, event: second},
		{op: callback, event: second},
		{op: callback, event: second, flags: flagNotice},
		{op: op(t, "clCreateUserEvent"), event: user},
		{op: callback, event: user},
		{op: poll, event: 0x77}, // of an event that is not known
	} {
		c.number, c.begin, c.duration = uint64(i), 2000+int64(i)*100, 50
		raws = append(raws, call(c))
	}
	_, records, err := joined(t, trace.Local, nil, (&raw{}).chunk(threadStream, 1, 0, raws...).bytes())
	type answer struct {
		Class    trace.Class
		Blocking trace.Blocking
		Bytes    uint64
		Wait     uint64
	}
	var got []answer
	for _, r := range records {
		a := answer{Class: r.Class, Blocking: r.Blocking, Bytes: r.Forward}
		if len(r.Waits) > 0 {
			a.Wait = r.Waits[0]
		}
		if a.Bytes > watchSize {
			a.Bytes = 0 // of the other calls
		}
		got = append(got, a)
	}
	local, early := trace.AnsweredLocally, trace.Early
	want := []answer{
		{early, trace.DeviceBlocking, 0, 0},
		{early, trace.NonBlocking, watchSize, 1},
		{local, trace.NonBlocking, 0, 1},
		{local, trace.HostBlocking, 0, 1},
		{early, trace.DeviceBlocking, 0, 0},
		{early, trace.NonBlocking, watchSize, 2},
		{local, trace.HostBlocking, 0, 2},
		{early, trace.NonBlocking, 0, 0},
		{local, trace.NonBlocking, 0, 3},
		{local, trace.NonBlocking, 0, 0},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%+v, want\n%+v", err, got, want)
	}
}
