package overhead

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

func TestProcessorTimeOfCommandsOfSeveralQueues(t *testing.T) {
	type command struct{ start, end int64 }
	for name, c := range map[string]struct {
		cores    int
		commands []command
		want     int64
	}{
		"one queue":                        {2, []command{{0, 10}, {10, 20}, {30, 40}}, 30},
		"as many as processors":            {2, []command{{0, 10}, {5, 15}, {10, 20}, {15, 25}}, 40},
		"more than processors":             {2, []command{{0, 10}, {0, 10}, {0, 10}, {0, 10}, {10, 20}, {10, 20}, {10, 20}}, 40},
		"one queue's calls before another": {1, []command{{0, 10}, {10, 20}, {5, 15}, {15, 25}}, 25},
	} {
		var cores deviceCores
		sum := int64(0)
		for _, x := range c.commands {
			sum += cores.add(x.start, x.end, c.cores)
		}
		if sum != c.want {
			t.Errorf("%s: %d, want %d", name, sum, c.want)
		}
	}
}

// Two commands that a processor executes at the same time take as long as recorded.
func TestOverlappingCommandsOfAProcessor(t *testing.T) {
	const ms, us = int64(time.Millisecond), int64(time.Microsecond)
	p := newProgram()
	p.header.Devices[0].Kind, p.header.Devices[0].Machine.Cores = "cpu", 1
	for i := range uint64(2) {
		begin := int64(i) * us
		p.records = append(p.records, trace.Record{
			Op: opLaunch, Class: trace.Early, Blocking: trace.DeviceBlocking, Command: true, Queue: queueID + i, Forward: 80,
			Begin: begin, End: begin + us, Execute: us, Start: 2 * us, DeviceTime: 20 * ms,
		})
	}
	end := 20*ms + 3*us
	p.records = append(p.records, trace.Record{
		Op: opFinish, Class: trace.WaitedFor, Blocking: trace.HostBlocking, Queue: queueID,
		Begin: 2 * us, End: end, Execute: us, Blocked: end - 3*us,
	})
	p.now = end
	r := p.exit(0)
	within(t, "at the same time", predictOne(t, r, Link{}, Options{Constants: zero()}), 20*time.Millisecond, time.Millisecond)
}

// Two programs with overlapping commands on one device take as long as both of them one after the
// other.
func TestOverlappingCommandsTogether(t *testing.T) {
	const ms, us = int64(time.Millisecond), int64(time.Microsecond)
	p := newProgram()
	for i := range uint64(4) {
		begin := int64(i) * us
		p.records = append(p.records, trace.Record{
			Op: opLaunch, Class: trace.Early, Blocking: trace.DeviceBlocking, Command: true, Queue: queueID + i, Forward: 80,
			Begin: begin, End: begin + us, Execute: us, Start: 4 * us, DeviceTime: 20 * ms,
		})
	}
	for i := range uint64(4) {
		begin, end := p.now+4*us, 20*ms+5*us
		p.records = append(p.records, trace.Record{
			Op: opFinish, Class: trace.WaitedFor, Blocking: trace.HostBlocking, Queue: queueID + i,
			Begin: max(begin, p.now), End: end, Execute: us, Blocked: max(0, end-begin-us),
		})
		p.now = end
	}
	r := p.exit(0)
	both, err := PredictTogether([]Open{r.open, r.open}, Link{}, Options{Constants: zero()})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "together", max(both[0].Wall, both[1].Wall), 40*time.Millisecond, 2*time.Millisecond)
}
