package opencl

import (
	"bytes"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// TestHostileBacklog: what waits for an event that the client never sets costs the
// worker no more than its budget; what does not fit fails.
func TestHostileBacklog(t *testing.T) {
	const limit = 16 << 20
	for name, test := range map[string]struct {
		count int
		size  uint64
	}{"small": {100_000, 4}, "large": {5_000, 64 << 10}} {
		t.Run(name, func(t *testing.T) {
			count, size := test.count, test.size
			c := dial(t, Options{Memory: 1 << 20, Host: limit})
			c.flags = 0
			context, queue := c.stage(0)
			mem, gate := c.buffer(context, size), c.id()
			c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for range count {
					c.send(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: queue, Buffer: mem, Size: size, EventWaitList: []uint64{gate}})
				}
			}()
			refused, read := 0, 0
			take := func() {
				n := c.await(opData)
				var d argsData
				if err := d.decode(n.body); err != nil {
					t.Fatal(err)
				}
				switch {
				case d.Status == clOutOfHostMemory:
					refused++
				case d.Status == clSuccess && uint64(len(n.bulk)) == size:
					read++
				default:
					t.Fatalf("notice %+v with %d bytes", d, len(n.bulk))
				}
			}
			most := int(limit / (size + commandCost))
			for refused < count-most {
				take()
			}
			<-sent
			if used := c.worker.budget.used.Load(); used > limit || read > 0 {
				t.Errorf("%d bytes of %d are held; %d reads are done", used, limit, read)
			}
			c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: gate})
			for refused+read < count {
				take()
			}
			c.finish(queue)
			c.worker.hostMemory.staging.trim() // what is kept for the next transfers
			if used := c.worker.budget.used.Load(); used > 64<<10 || read == 0 {
				t.Errorf("%d bytes are held at the end; %d reads were done", used, read)
			}
		})
	}
}

// TestBacklog: a client that only enqueues is slowed down, not refused.
func TestBacklog(t *testing.T) {
	c := dial(t, Options{Host: 1 << 20})
	context, queue := c.stage(0)
	mem := c.buffer(context, 64)
	for range 20_000 {
		c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 64})
	}
	c.finish(queue)
	c.noFailures()
	if used := c.worker.budget.used.Load(); used > 64<<10 {
		t.Errorf("%d bytes are held at the end", used)
	}
}

// TestReleasedQueueCounts: the commands of a queue that was given up are not
// forgotten while they can't run.
func TestReleasedQueueCounts(t *testing.T) {
	c := dial(t, Options{Host: 1 << 20})
	c.flags = 0
	context, _ := c.stage(0)
	mem, gate := c.buffer(context, 64), c.id()
	c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
	for range 100 {
		queue := c.id()
		c.send(opClCreateCommandQueue, &argsClCreateCommandQueue{Context: context, Device: deviceID, Result: queue})
		for range 100 {
			c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 64, EventWaitList: []uint64{gate}})
		}
		c.send(opRelease, &argsRelease{Kind: uint32(kindQueue), Object: queue})
	}
	c.must(opClock, &argsClock{})
	if used := c.worker.budget.used.Load(); used < 500<<10 || used > 1<<20 {
		t.Errorf("%d bytes are counted for commands that can't run", used)
	}
	failed := 0
	for _, n := range c.notices {
		var f argsFailed
		if n.op == opFailed && f.decode(n.body) == nil && f.Status == clOutOfHostMemory {
			failed++
		}
	}
	if failed < 5000 {
		t.Errorf("%d commands were refused, want most of 10000", failed)
	}
	c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: gate})
	for c.worker.budget.used.Load() > 100<<10 {
		c.must(opClock, &argsClock{})
	}
}

// TestManyWaits: too many threads that wait are told so while they could wait for
// ever.
func TestManyWaits(t *testing.T) {
	c := dial(t, Options{})
	c.flags = 0
	context, queue := c.stage(0)
	mem, gate, event := c.buffer(context, 64), c.id(), c.id()
	c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
	c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{
		CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 64, EventWaitList: []uint64{gate}, Event: event,
	})
	for range maxWaits + 10 {
		c.begin(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{event}})
	}
	for range 10 {
		if h, _, _ := c.receiveReply(); h.Status != clOutOfHostMemory {
			t.Fatalf("a wait was answered with %d", h.Status)
		}
	}
	c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: gate})
	refused := 0
	for range maxWaits {
		if h, _, _ := c.receiveReply(); h.Status != clSuccess {
			refused++
		}
	}
	if refused > 1 { // a flush may have had one place meanwhile
		t.Errorf("%d waits were refused of as many as there is room for", refused)
	}
}

// TestLateFailure: what depends on a command that failed after the driver had
// taken it fails, although there are drivers that would never end it.
func TestLateFailure(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(clQueueOutOfOrder)
		mem, gate, first := c.buffer(context, 64), c.id(), c.id()
		fill := func(event uint64, waits ...uint64) {
			c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{
				CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 64, EventWaitList: waits, Event: event,
			})
		}
		c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
		fill(first, gate)
		c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: gate, ExecutionStatus: -9})
		for range 2 { // before and after the failure is known here
			next := c.id()
			fill(next, first)
			for _, event := range []uint64{next, first} {
				if status, _, _ := c.call(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{event}}); status != clExecStatusError {
					t.Errorf("waiting for event %d: %d, want %d", event, status, clExecStatusError)
				}
			}
		}
		if status, _, data := c.call(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{
			CommandQueue: queue, Buffer: mem, BlockingRead: 1, Size: 64, EventWaitList: []uint64{first},
		}); status != clExecStatusError || len(data) != 0 {
			t.Errorf("reading after a failure: %d, %d bytes", status, len(data))
		}
		c.finish(queue)
		c.notices = nil
	})
}

// TestFailedBeforeItsWaitListEnds: a command has failed with one event of its wait list, the
// client has released it, and only then the other event of the list ends. The driver still
// knows the command from there.
func TestFailedBeforeItsWaitListEnds(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(clQueueOutOfOrder)
		for round := range 20 {
			first, last, event := c.id(), c.id(), c.id()
			for _, gate := range []uint64{first, last} {
				c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
			}
			// PoCL's buffers hold the last event that used them: a marker uses none.
			c.send(opClEnqueueMarkerWithWaitList, &argsClEnqueueMarkerWithWaitList{CommandQueue: queue, EventWaitList: []uint64{first, last}, Event: event})
			c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: first, ExecutionStatus: -9})
			if status, _, _ := c.call(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{event}}); status != clExecStatusError {
				t.Fatalf("waiting gave %d, want %d", status, clExecStatusError)
			}
			c.send(opRelease, &argsRelease{Kind: uint32(kindEvent), Object: event})
			c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: last, ExecutionStatus: -int32(round % 2)})
			for _, gate := range []uint64{first, last} {
				c.send(opRelease, &argsRelease{Kind: uint32(kindEvent), Object: gate})
			}
		}
		c.finish(queue)
		failed := &c.worker.events.failed
		failed.mu.Lock()
		defer failed.mu.Unlock()
		if kept := len(failed.kept); kept < 20 {
			t.Errorf("%d failed events are kept, want one of each round at least", kept)
		}
	})
}

// TestFailureReportedMeanwhile: the completer reports a failure while the dispatcher handles a
// message whose command depends on it.
func TestFailureReportedMeanwhile(t *testing.T) {
	const id = 300
	objects := &objects{table: session.NewTable(16)}
	ev := &events{objects: objects}
	if err := objects.table.Add(id, session.Entry{Kind: kindEvent, Handle: 1}); err != nil {
		t.Fatal(err)
	}
	if ev.hasFailed(id) {
		t.Error("the event has failed before its command did")
	}
	objects.updates.add(objectUpdate{id: id, entry: session.Entry{Failed: clExecStatusError}, failed: true})
	if !ev.hasFailed(id) {
		t.Error("the failure that the completer has reported is not known")
	}
}

// TestFailedEventsAreBounded: the oldest of the failed events that are kept make room.
func TestFailedEventsAreBounded(t *testing.T) {
	var f failedEvents
	for i := uintptr(1); i <= 2*maxFailedEvents+3; i++ {
		want := uintptr(0)
		if i > maxFailedEvents {
			want = i - maxFailedEvents
		}
		if got := f.retain(i); got != want {
			t.Fatalf("event %d replaced %d, want %d", i, got, want)
		}
	}
}

// TestAbandonedUserEvent: a user event that nobody can set any more holds nothing
// up for ever.
func TestAbandonedUserEvent(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(0)
		mem, gate, event := c.buffer(context, 64), c.id(), c.id()
		c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
		c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{
			CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 64, EventWaitList: []uint64{gate}, Event: event,
		})
		c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: event}) // not a user event
		c.send(opRelease, &argsRelease{Kind: uint32(kindEvent), Object: gate})
		if status, _, _ := c.call(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{event}}); status != clExecStatusError {
			t.Errorf("waiting for what waits for it: %d", status)
		}
		var f argsFailed
		if err := f.decode(c.await(opFailed).body); err != nil || f.Status != clInvalidOperation {
			t.Errorf("setting the event of a command: %+v, %v", f, err)
		}
		c.notices = nil
	})
}

// TestReadFailsInTheMiddle: a read whose first pieces have been sent already still
// fails as a whole.
func TestReadFailsInTheMiddle(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(clQueueProfiling) // such are read in pieces everywhere
		const size = 3 << 20
		mem := c.buffer(context, size)
		args := argsClEnqueueReadBuffer{CommandQueue: queue, Buffer: mem, BlockingRead: 1, Size: size + 4}
		if status, _, _ := c.call(opClEnqueueReadBuffer, &args); status != clInvalidValue {
			t.Errorf("blocking read beyond the end: %d, want %d", status, clInvalidValue)
		}
		args.BlockingRead, args.Event = 0, c.id()
		serial := c.send(opClEnqueueReadBuffer, &args)
		var n argsData
		if err := n.decode(c.await(opData).body); err != nil || n.Serial != serial || n.Status != clInvalidValue {
			t.Errorf("read beyond the end: %+v, %v", n, err)
		}
		if status, _, _ := c.call(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{args.Event}}); status != clExecStatusError {
			t.Errorf("its event: %d", status)
		}
		if got := c.read(queue, mem, size); len(got) != size {
			t.Errorf("%d bytes", len(got))
		}
	})
}

// slow driver has one function that blocks until it may go on.
type slow struct {
	fakeDriver
	function int
	entered  chan struct{}
	proceed  chan struct{}
}

func newSlow(function int) (*slow, *driver.Table) {
	s := &slow{function: function, entered: make(chan struct{}, 100), proceed: make(chan struct{})}
	s.table()
	return s, driver.Fake(Functions(), func(fn int, args []uintptr) uintptr {
		if fn == s.function {
			s.entered <- struct{}{}
			<-s.proceed
			if fn == fnClLinkProgram {
				return 0x99
			}
		}
		return s.call(fn, args)
	})
}

// TestOthersGoOn: a call that takes long holds up no other thread of the client.
func TestOthersGoOn(t *testing.T) {
	const size = 4 << 20
	tests := map[string]struct {
		function int
		begin    func(c *testClient, context, queue, mem uint64) (call uint32)
		bulk     int
	}{
		"a large read": {fnClWaitForEvents, func(c *testClient, _, queue, mem uint64) uint32 {
			return c.begin(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: queue, Buffer: mem, BlockingRead: 1, Size: size})
		}, size},
		"a link": {fnClLinkProgram, func(c *testClient, context, _, _ uint64) uint32 {
			return c.begin(opClLinkProgram, &argsClLinkProgram{Context: context, Result: c.id()})
		}, 0},
		"a finish after a flush that waits": {fnClFlush, func(c *testClient, context, queue, _ uint64) uint32 {
			c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: c.id()})
			for range 100 {
				c.send(opClFlush, &argsClFlush{CommandQueue: queue})
			}
			return c.begin(opClFinish, &argsClFinish{CommandQueue: queue})
		}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, table := newSlow(test.function)
			c := dial(t, Options{Driver: table, Memory: 1 << 30})
			c.flags = 0
			context, queue := c.stage(0)
			mem := c.buffer(context, size)
			call := test.begin(c, context, queue, mem)
			<-s.entered
			clock := c.begin(opClock, &argsClock{})
			replies := map[uint32]int{}
			take := func() {
				h, _, bulk := c.receiveReply()
				if h.Status != clSuccess {
					t.Errorf("call %d: %d", h.Call, h.Status)
				}
				replies[h.Call] = len(bulk)
			}
			for _, ok := replies[clock]; !ok; _, ok = replies[clock] {
				take()
			}
			close(s.proceed)
			for len(replies) < 2 {
				take()
			}
			if replies[call] != test.bulk {
				t.Errorf("reply with %d bytes, want %d", replies[call], test.bulk)
			}
		})
	}
}

// TestOrderIsKept: what follows a large read of another thread does not get between
// its pieces, and its event is there for commands that name it.
func TestOrderIsKept(t *testing.T) {
	c := dial(t, Options{})
	c.flags = 0
	context, queue := c.stage(0)
	const size = 4 << 20
	mem, event := c.buffer(context, size), c.id()
	for i := range byte(6) {
		c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Pattern: []byte{i}, Size: size})
		read := c.begin(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: queue, Buffer: mem, BlockingRead: 1, Size: size, Event: event})
		c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Pattern: []byte{200}, Size: size, EventWaitList: []uint64{event}})
		c.send(opRelease, &argsRelease{Kind: uint32(kindEvent), Object: event})
		if _, _, got := c.reply(read); !bytes.Equal(got, bytes.Repeat([]byte{i}, size)) {
			t.Fatal("the read saw what came after it")
		}
		event = c.id()
	}
	c.finish(queue)
	c.noFailures()
}
