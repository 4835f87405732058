package opencl

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// recorded has the serials of a recording's entries, by kind, in their order.
type recorded map[byte][]uint64

// readEntries reads the entries of one message of a recording.
func (r recorded) readEntries(t *testing.T, entries []byte) {
	t.Helper()
	in := bytes.NewReader(entries)
	var serial uint64
	var received int64
	for in.Len() > 0 {
		kind, _ := in.ReadByte()
		difference, err := binary.ReadVarint(in)
		if err != nil {
			t.Fatal(err)
		}
		at, err := binary.ReadVarint(in)
		if err != nil {
			t.Fatal(err)
		}
		r[kind] = append(r[kind], serial+uint64(difference))
		times := map[byte]int{entryMessage: 2, entryReply: 0, entryDevice: 1}
		count, known := times[kind]
		if !known {
			t.Fatalf("an entry of kind %d", kind)
		}
		for range count {
			if _, err := binary.ReadUvarint(in); err != nil {
				t.Fatal(err)
			}
		}
		if kind == entryMessage {
			if serial, received = serial+uint64(difference), received+at; at < 0 {
				t.Errorf("message %d was received %d ns before the last one", serial, -at)
			}
		}
	}
}

// TestRecordsMessages: a recording has each message that a worker executes, each reply, and the
// times of each command on the device, also of a queue without profiling.
func TestRecordsMessages(t *testing.T) {
	c := dial(t, Options{})
	c.must(opRecord, &argsRecord{Enable: 1})
	context, queue := c.stage(0)
	_, kernel := c.kernel(context, "add", addOne)
	mem := c.buffer(context, 256)
	var commands []uint64
	commands = append(commands, c.send(opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Pattern: []byte{7}, Size: 256}))
	c.setMem(kernel, 0, mem)
	for range 2 * collectBatch {
		commands = append(commands, c.launch(queue, kernel, 64, 0))
	}
	c.read(queue, mem, 256)
	read := c.serial
	first := c.serial
	for range maxTracedCommands / collectBatch / 8 {
		c.send(opRelease, &argsRelease{Kind: uint32(kindMem), Object: c.buffer(context, 64)})
	}
	c.finish(queue)
	last := c.serial
	c.must(opRecord, &argsRecord{})
	got := recorded{}
	for {
		var part argsRecorded
		if err := part.decode(c.await(opRecorded).body); err != nil {
			t.Fatal(err)
		}
		got.readEntries(t, part.Entries)
		if part.Last != 0 {
			break
		}
	}
	for serial := first; serial <= last; serial++ {
		if !slices.Contains(got[entryMessage], serial) {
			t.Fatalf("message %d is not recorded: %d", serial, got[entryMessage])
		}
	}
	if !slices.Contains(got[entryReply], read) || !slices.Contains(got[entryReply], last) {
		t.Errorf("replies are recorded of messages %d, want %d and %d among them", got[entryReply], read, last)
	}
	for _, serial := range commands {
		if !slices.Contains(got[entryDevice], serial) {
			t.Errorf("the device's times of command %d are not recorded: %d", serial, got[entryDevice])
		}
	}
	// Afterwards nothing is recorded.
	c.finish(queue)
	for _, n := range c.notices {
		if n.op == opRecorded {
			t.Error("a message was recorded after the end")
		}
	}
}

// TestOldEntriesAreSent: while the client sends nothing, entries are sent once they are many or old.
func TestOldEntriesAreSent(t *testing.T) {
	r := &tracer{clock: newFastClock()}
	if r.enough(1 << 62) {
		t.Error("no entries are sent")
	}
	r.append(entryReply, 1, 1)
	first := r.since
	r.append(entryReply, 2, 2)
	for age, want := range map[time.Duration]bool{0: false, flushAge - 1: false, flushAge: true} {
		if got := r.enough(first + age); got != want {
			t.Errorf("entries of %v are sent: %v, want %v", age, got, want)
		}
	}
	for len(r.entries) < flushIdle {
		r.append(entryReply, 3, 3)
	}
	if !r.enough(r.since) {
		t.Error("many entries are not sent")
	}
}

// TestEntriesAreDivided: each message of a recording fits into a record of the program's file, also
// where the times of many commands become known at once.
func TestEntriesAreDivided(t *testing.T) {
	const most = 32 << 10 // half of a chunk: cmd/libsession/record/record.c
	r := &tracer{clock: newFastClock()}
	var want []uint64
	for serial := range uint64(20_000) {
		want = append(want, serial)
		r.append(entryDevice, serial, 1<<50+int64(serial), 1<<40)
	}
	got := recorded{}
	for _, part := range append(r.full, r.entries) {
		if len(part) > most {
			t.Errorf("a message has %d bytes of entries: want at most %d", len(part), most)
		}
		got.readEntries(t, part)
	}
	if !slices.Equal(got[entryDevice], want) {
		t.Errorf("%d entries were read: want the %d that were appended", len(got[entryDevice]), len(want))
	}
}

func TestProfilingIsAdded(t *testing.T) {
	const size = 0x1094 // CL_QUEUE_SIZE
	for _, test := range []struct {
		list, want []uint64
		added      bool
	}{
		{nil, []uint64{clQueueProperties, clQueueProfiling}, true},
		{[]uint64{clQueueProperties, 1, 0}, []uint64{clQueueProperties, 1 | clQueueProfiling, 0}, true},
		{[]uint64{clQueueProperties, clQueueProfiling, 0}, []uint64{clQueueProperties, clQueueProfiling, 0}, false},
		{[]uint64{clQueueProperties, clQueueOnDevice | 1, 0}, []uint64{clQueueProperties, clQueueOnDevice | 1, 0}, false},
		{[]uint64{clQueueProperties, 0, size, 1, 0}, []uint64{clQueueProperties, 0, size, 1, 0}, false},
	} {
		if got, added := withProfiling(test.list); !slices.Equal(got, test.want) || added != test.added {
			t.Errorf("%#x became %#x (%v)", test.list, got, added)
		}
	}
}
