package overhead

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// sharedQueues makes the recording of a local run whose threads have a queue each on one device, which
// executes their commands in turn: each thread launches a command and waits for it.
func sharedQueues(threads, rounds int, device time.Duration) *recording {
	const call = int64(2 * time.Microsecond)
	p := newProgram()
	idle := int64(time.Microsecond) // when the device is
	now := make([]int64, threads)
	for range rounds {
		for i := range now {
			launch := trace.Record{
				Thread: uint32(i), Op: opLaunch, Class: trace.Early, Blocking: trace.DeviceBlocking, Command: true, Queue: queueID + uint64(i),
				Forward: 80, Begin: now[i], End: now[i] + call, Execute: call,
			}
			launch.Start, launch.DeviceTime = max(idle, launch.End), int64(device)
			idle = launch.Start + launch.DeviceTime
			finish := trace.Record{
				Thread: uint32(i), Op: opFinish, Class: trace.WaitedFor, Blocking: trace.HostBlocking, Queue: queueID + uint64(i),
				Begin: launch.End, End: idle + call, Execute: call,
			}
			finish.Blocked = finish.Duration() - call
			now[i] = finish.End
			p.records = append(p.records, launch, finish)
		}
	}
	slices.SortStableFunc(p.records, func(a, b trace.Record) int { return int(a.Begin - b.Begin) })
	p.now = slices.Max(now)
	return p.exit(0)
}

// A command that waited for another queue's command does so over any network: a device is no faster
// for being elsewhere.
func TestQueuesShareTheirDevice(t *testing.T) {
	r := sharedQueues(4, 20, 10*time.Millisecond)
	want := time.Duration(r.end.Duration)
	if got := predictOne(t, r, Link{}, Options{Constants: zero()}); got < want-want/50 || got > want+10*time.Microsecond {
		t.Errorf("%v without costs of forwarding, recorded %v", got, want)
	}
}

func TestABetterNetworkIsNeverSlowerForSeveralQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		device := time.Duration(rapid.Int64Range(int64(10*time.Microsecond), int64(10*time.Millisecond)).Draw(t, "device"))
		r, worse := sharedQueues(rapid.IntRange(2, 6).Draw(t, "threads"), rapid.IntRange(1, 40).Draw(t, "rounds"), device), drawLink(t)
		better := Link{RTT: worse.RTT / 2, Up: 2 * worse.Up, Down: 2 * worse.Down}
		o := Options{Constants: DefaultConstants()}
		if slow, fast := predictOne(t, r, worse, o), predictOne(t, r, better, o); fast > slow {
			t.Fatalf("%v over %+v, %v over %+v", slow, worse, fast, better)
		}
	})
}

// A command that its program flushes late, long after those of the other queues, begins when it can.
func TestOtherQueuesDoNotReplaceAFlush(t *testing.T) {
	const ms, us = int64(time.Millisecond), int64(time.Microsecond)
	p := newProgram()
	command := func(queue uint64, at, start int64) {
		p.records = append(p.records, trace.Record{
			Op: opLaunch, Class: trace.Early, Blocking: trace.DeviceBlocking, Command: true, Queue: queue, Forward: 80,
			Begin: at, End: at + us, Execute: us, Start: start, DeviceTime: 10 * ms,
		})
	}
	finish := func(queue uint64, at, end int64) {
		p.records = append(p.records, trace.Record{
			Op: opFinish, Class: trace.WaitedFor, Blocking: trace.HostBlocking, Queue: queue,
			Begin: at, End: end, Execute: us, Blocked: end - at - us,
		})
	}
	command(queueID, 0, us)
	command(queueID+1, us, 500*ms)
	finish(queueID, 2*us, 10*ms+2*us)
	finish(queueID+1, 10*ms+2*us, 510*ms)
	p.now = 510 * ms
	r := p.exit(0)
	// The second command begins after the first one, not half a second later.
	within(t, "flushed late", predictOne(t, r, Link{}, Options{Constants: zero()}), 20*time.Millisecond, time.Millisecond)
}
