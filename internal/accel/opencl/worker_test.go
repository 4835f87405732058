package opencl

import (
	"bytes"
	"slices"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/session"
)

// flagsOf runs a test as a client with one thread and as one with several.
func flagsOf(t *testing.T, run func(t *testing.T, c *testClient)) {
	for name, flags := range map[string]uint16{"alone": session.Alone, "threads": 0} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, Options{})
			c.flags = flags
			run(t, c)
			c.noFailures()
		})
	}
}

func TestLaunch(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(0)
		_, kernel := c.kernel(context, "add", addOne)
		const n = 1000
		mem := c.buffer(context, 4*n)
		c.send(opClEnqueueWriteBuffer, &argsClEnqueueWriteBuffer{CommandQueue: queue, Buffer: mem, Size: 4 * n},
			words32(n, func(i int) uint32 { return uint32(i) }))
		c.setMem(kernel, 0, mem)
		for range 100 {
			c.launch(queue, kernel, n, 0)
		}
		if got, want := c.read(queue, mem, 4*n), words32(n, func(i int) uint32 { return uint32(i) + 100 }); !bytes.Equal(got, want) {
			t.Errorf("100 launches: %v..., want %v...", got[:8], want[:8])
		}
	})
}

// TestTransfers writes and reads all sizes, blocking and not, with and without
// events.
func TestTransfers(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(0)
		for _, size := range []int{1, 4, 4096, directWrite + 1, directRead + 7, 5 << 20} {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(i * 31 >> 3)
			}
			mem, written := c.buffer(context, uint64(size)), c.id()
			c.send(opClEnqueueWriteBuffer, &argsClEnqueueWriteBuffer{CommandQueue: queue, Buffer: mem, Size: uint64(size), Event: written}, data)
			if got := c.read(queue, mem, uint64(size)); !bytes.Equal(got, data) {
				t.Errorf("%d bytes changed on their way", size)
			}
			event := c.id()
			serial := c.send(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{
				CommandQueue: queue, Buffer: mem, Size: uint64(size), EventWaitList: []uint64{written}, Event: event,
			})
			c.must(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{event}})
			var n argsData
			note := c.await(opData)
			if err := n.decode(note.body); err != nil || n.Serial != serial || n.Status != 0 || !bytes.Equal(note.bulk, data) {
				t.Errorf("data notice %+v with %d bytes, want serial %d, %d bytes", n, len(note.bulk), serial, size)
			}
			for _, id := range []uint64{written, event} {
				c.send(opRelease, &argsRelease{Kind: uint32(kindEvent), Object: id})
			}
			c.send(opRelease, &argsRelease{Kind: uint32(kindMem), Object: mem})
		}
		c.finish(queue)
		if used := c.worker.memory.inUse(); used != 0 {
			t.Errorf("%d bytes are counted after all is released", used)
		}
	})
}

// TestDataComesFirst: the data of a non-blocking read is there before the reply
// from which its completion follows.
func TestDataComesFirst(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(0)
		mem := c.buffer(context, 64)
		c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 64})
		for range 200 {
			c.send(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: queue, Buffer: mem, Size: 64})
		}
		c.finish(queue)
		count := 0
		for _, n := range c.notices {
			if n.op == opData {
				count++
			}
		}
		if count != 200 {
			t.Errorf("%d of 200 reads had sent their data before the reply", count)
		}
	})
}

func TestFailures(t *testing.T) {
	c := dial(t, Options{})
	context, queue := c.stage(0)
	mem := c.buffer(context, 64)
	event, dependent := c.id(), c.id()
	serial := c.send(opClEnqueueWriteBuffer, &argsClEnqueueWriteBuffer{CommandQueue: queue, Buffer: mem, Offset: 60, Size: 64, Event: event}, make([]byte, 64))
	n := c.await(opFailed)
	var f argsFailed
	if err := f.decode(n.body); err != nil || f.Serial != serial || f.Status != clInvalidValue || f.Event != event || f.Queue != queue {
		t.Errorf("failed notice %+v, %v", f, err)
	}
	// What depends on it fails as well.
	c.send(opClEnqueueMarkerWithWaitList, &argsClEnqueueMarkerWithWaitList{CommandQueue: queue, EventWaitList: []uint64{event}, Event: dependent})
	if status, _, _ := c.call(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{dependent}}); status >= 0 {
		t.Errorf("waiting for what depends on a failed command: %d", status)
	}
	// Handles that are none.
	for _, test := range []struct {
		queue, mem uint64
		want       int32
	}{{queue, 9999, -38}, {9999, mem, -36}, {mem, mem, -36}, {queue, queue, -38}} {
		status, _, _ := c.call(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: test.queue, Buffer: test.mem, BlockingRead: 1, Size: 4})
		if status != test.want {
			t.Errorf("read of buffer %d by queue %d: %d, want %d", test.mem, test.queue, status, test.want)
		}
	}
	if status, _, _ := c.call(opClBuildProgram, &argsClBuildProgram{Program: 4711}); status != -44 {
		t.Errorf("build of no program: %d", status)
	}
}

func TestMemoryLimit(t *testing.T) {
	c := dial(t, Options{Memory: 1 << 20})
	context, queue := c.stage(0)
	want := func(what string, status int32) {
		t.Helper()
		c.finish(queue)
		var got []int32
		for _, n := range c.notices {
			if n.op == opFailed {
				var f argsFailed
				_ = f.decode(n.body)
				got = append(got, f.Status)
			}
		}
		c.notices = nil
		if status == 0 && len(got) > 0 || status != 0 && (len(got) != 1 || got[0] != status) {
			t.Errorf("%s: failures %v, want %d", what, got, status)
		}
	}
	first := c.buffer(context, 600<<10)
	want("a buffer that fits", 0)
	second := c.buffer(context, 600<<10)
	want("one too many", clAllocationFailure)
	c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: second, Pattern: []byte{7}, Size: 64})
	want("using what was not made", clAllocationFailure)
	c.send(opClCreateBuffer, &argsClCreateBuffer{Context: context, Flags: 1 | clMemCopyHostPtr, Size: 600 << 10, Result: c.id()}, make([]byte, 600<<10))
	want("one with content", clAllocationFailure)
	desc := make([]byte, imageDescSize)
	copy(desc, words32(1, func(int) uint32 { return 0x10F1 }))
	copy(desc[8:], []byte{0, 4})  // 1024 wide
	copy(desc[16:], []byte{0, 4}) // 1024 high
	image := argsClCreateImage{Context: context, Flags: 1, ImageFormat: words32(2, func(i int) uint32 { return []uint32{0x10B5, 0x10DA}[i] }), ImageDesc: desc, Result: c.id()}
	c.send(opClCreateImage, &image)
	want("an image", clAllocationFailure)
	c.send(opRelease, &argsRelease{Kind: uint32(kindMem), Object: first})
	third := c.buffer(context, 600<<10)
	want("one in the place of the first", 0)
	c.send(opRelease, &argsRelease{Kind: uint32(kindMem), Object: third})
	c.send(opRelease, &argsRelease{Kind: uint32(kindMem), Object: second})
	c.finish(queue)
	if used := c.worker.memory.inUse(); used != 0 {
		t.Errorf("%d bytes are counted after all is released", used)
	}
	var s argsSnapshot
	c2 := dial(t, Options{Memory: 1 << 20})
	if err := s.decode(c2.await(opSnapshot).body); err != nil || s.MemoryLimit != 1<<20 {
		t.Errorf("snapshot says %d, %v", s.MemoryLimit, err)
	}
	var r replyClGetDeviceInfo
	if err := r.decode(c2.must(opClGetDeviceInfo, &argsClGetDeviceInfo{Device: deviceID, ParamName: clDeviceGlobalMemSize})); err != nil || firstWord(r.ParamValueSize) != 1<<20 {
		t.Errorf("the device says %d, %v", firstWord(r.ParamValueSize), err)
	}
}

// TestUserEvents: a dispatcher never waits for what only its client can do.
func TestUserEvents(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		c.flags = 0
		context, queue := c.stage(0)
		mem := c.buffer(context, 1<<20)
		gate := c.id()
		c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
		data := bytes.Repeat([]byte{3}, 1<<20)
		c.send(opClEnqueueWriteBuffer, &argsClEnqueueWriteBuffer{CommandQueue: queue, Buffer: mem, Size: 1 << 20, EventWaitList: []uint64{gate}}, data)
		read := c.begin(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: queue, Buffer: mem, BlockingRead: 1, Size: 1 << 20})
		// Another thread asks something, and then opens the gate.
		var r replyClock
		clock := c.begin(opClock, &argsClock{})
		_, body, _ := c.reply(clock)
		if err := r.decode(body); err != nil || r.WorkerClock == 0 {
			t.Errorf("clock: %v, %v", r, err)
		}
		c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: gate})
		if _, _, got := c.reply(read); !bytes.Equal(got, data) {
			t.Error("the read did not see the write")
		}
	})
}

func TestProfiling(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		before := monotonic()
		context, queue := c.stage(clQueueProfiling)
		_, kernel := c.kernel(context, "add", addOne)
		mem := c.buffer(context, 4096)
		c.setMem(kernel, 0, mem)
		event := c.id()
		c.launch(queue, kernel, 1024, event)
		c.finish(queue)
		var n argsEvent
		if err := n.decode(c.await(opEvent).body); err != nil {
			t.Fatal(err)
		}
		if n.Event != event || n.Status != 0 || len(n.Times) != profilingTimes {
			t.Fatalf("event notice %+v", n)
		}
		for _, at := range n.Times {
			if at < before || at > monotonic() {
				t.Errorf("time %d is not between %d and now: another clock", at, before)
			}
		}
	})
}

func TestWatch(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, queue := c.stage(0)
		mem := c.buffer(context, 64)
		for range 3 {
			event := c.id()
			c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 64, Event: event})
			c.send(opWatch, &argsWatch{Event: event})
			var n argsEvent
			if err := n.decode(c.await(opEvent).body); err != nil || n.Event != event || n.Status != clComplete {
				t.Errorf("event notice %+v, %v", n, err)
			}
		}
	})
}

func TestPlatformVersion(t *testing.T) {
	for text, want := range map[string]int{"OpenCL 3.0 PoCL 3.1": 30, "OpenCL 1.2 (Oclgrind 21.10)": 12, "": 10, "rubbish": 10} {
		if got := platformVersion(text); got != want {
			t.Errorf("version of %q: %d, want %d", text, got, want)
		}
	}
	for _, names := range newSince {
		for _, name := range names {
			if !slices.Contains(functionNames, name) {
				t.Errorf("no function is called %s", name)
			}
		}
	}
}

// TestProtocolBreaks: what no client may do ends the session.
func TestProtocolBreaks(t *testing.T) {
	tests := map[string]func(c *testClient){
		"an id that was used": func(c *testClient) {
			c.send(opClCreateContext, &argsClCreateContext{Devices: []uint64{deviceID}, Result: deviceID})
		},
		"an unknown op":     func(c *testClient) { c.send(0x7fff, &argsClock{}) },
		"a body too long":   func(c *testClient) { c.send(opRelease, &argsWatchTwice{}) },
		"another protocol":  func(c *testClient) { c.send(opHello, &argsHello{Protocol: 99}) },
		"less data than it": func(c *testClient) { c.send(opClCreateBuffer, &argsClCreateBuffer{Size: 64}, make([]byte, 8)) },
	}
	for name, break_ := range tests {
		t.Run(name, func(t *testing.T) {
			c := dial(t, Options{})
			break_(c)
			err := <-c.ended
			c.ended <- nil
			if err == nil {
				t.Error("the worker went on")
			}
		})
	}
}

type argsWatchTwice struct{}

func (*argsWatchTwice) encode([]byte) []byte { return make([]byte, 24) }

// A session is at work while the device is, and not while all depends on the client.
func TestWorking(t *testing.T) {
	c := dial(t, Options{})
	context, queue := c.stage(0)
	mem := c.buffer(context, 64)
	_, kernel := c.kernel(context, "spin", "kernel void spin(global uint *a) { uint x = a[0]; for (uint i = 0; i < 600000000u; i++) x = x * 1664525u + 1013904223u; a[0] = x; }")
	c.setMem(kernel, 0, mem)
	working := func(when string, want bool) {
		t.Helper()
		if got := c.worker.Working(); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	working("before all", false)
	event := c.id()
	c.launch(queue, kernel, 1, event)
	c.must(opClFlush, &argsClFlush{CommandQueue: queue})
	working("while a kernel runs", true)
	c.must(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{event}})
	working("when it has", false)
	gate, gated := c.id(), c.id()
	c.must(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
	c.launch(queue, kernel, 1, gated, gate)
	c.must(opClFlush, &argsClFlush{CommandQueue: queue})
	working("while a kernel waits for the client", false)
	c.must(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: gate})
	working("when it does not any more", true)
	c.must(opClWaitForEvents, &argsClWaitForEvents{EventList: []uint64{gated}})
	working("at the end", false)
	c.noFailures()
}
