package compute

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

// each runs a test with a session for one holder, and with one for several.
func each(t *testing.T, run func(t *testing.T, d *Device)) {
	for name, shared := range map[string]bool{"alone": false, "shared": true} {
		t.Run(name, func(t *testing.T) { run(t, dial(t, Options{Shared: shared}, 0)) })
	}
}

func index(i int) uint32 { return uint32(i) }

func TestDo(t *testing.T) {
	const n = 1000
	each(t, func(t *testing.T, d *Device) {
		h := holder(t, d)
		l := new(list).buffer(7, 4*n).write(7, 0, words(n, index)).program(1, source, "-DX=1")
		l.launch(1, "add", n, 0, 2).mem(7).scalar(words(1, func(int) uint32 { return 5 })).read(7, 0, 4*n)
		want := words(n, func(i int) uint32 { return uint32(i) + 5 })
		if r := do(t, h, l, nil); string(r.Read) != want || r.Moved != 8*n {
			t.Errorf("got %d bytes, %d moved", len(r.Read), r.Moved)
		}
		// What was made is there in the next list.
		l = new(list).launch(1, "reverse", n, 10, 2).mem(7).local(40).read(7, 40, 8).read(7, 0, 4)
		want = words(3, func(i int) uint32 { return []uint32{19 + 5, 18 + 5, 9 + 5}[i] })
		if diff := cmp.Diff(want, string(do(t, h, l, nil).Read)); diff != "" {
			t.Error(diff)
		}
		do(t, h, new(list).free(7), nil)
		if _, err := h.Do(t.Context(), *new(list).read(7, 0, 4), nil); err == nil || err.Error() != "command 0, read: there is no buffer 7" {
			t.Errorf("after free: %v", err)
		}
	})
}

func TestMemory(t *testing.T) {
	const size = 3<<20 + 5 // several messages
	each(t, func(t *testing.T, d *Device) {
		h, memory := holder(t, d), make([]byte, 2*size)
		for i := range size {
			memory[i] = byte(i * 7 >> 2)
		}
		l := new(list).buffer(1, size+1).writeFrom(1, 1, 0, size).readTo(1, 1, size, size).read(1, 0, 2)
		r := do(t, h, l, memoryOf(memory))
		if !bytes.Equal(memory[:size], memory[size:]) {
			t.Error("what was read is not what was written")
		}
		if string(r.Read) != "\x00\x00" {
			t.Errorf("read %q", r.Read)
		}
	})
}

// A buffer begins with zeroes, whichever session used the memory before.
func TestBuffersAreZero(t *testing.T) {
	const size = 1 << 20
	each(t, func(t *testing.T, d *Device) {
		for _, odd := range []uint64{0, 3} {
			do(t, holder(t, d), new(list).buffer(1, size+odd).write(1, 0, strings.Repeat("x", size)).free(1), nil)
			r := do(t, holder(t, d), new(list).buffer(1, size+odd).write(1, 8, "hi").read(1, 0, 64), nil)
			if want := "\x00\x00\x00\x00\x00\x00\x00\x00hi" + strings.Repeat("\x00", 54); string(r.Read) != want {
				t.Errorf("read %q", r.Read)
			}
		}
	})
}

func TestErrors(t *testing.T) {
	tests := map[string]struct {
		list *list
		want string
	}{
		"no such command":    {new(list).u8(9).u32(1), "list of commands: number 0: there is no command 9"},
		"cut short":          {new(list).buffer(1, 8).u8(2), "list of commands: number 1: it is cut short"},
		"dimensions":         {new(list).u8(4).u32(1).text("add").u8(4), "list of commands: number 0: launch of add: 4 dimensions: want 1 to 3"},
		"kind of argument":   {new(list).launch(1, "add", 1, 0, 1).u8(9), "list of commands: number 0: launch of add: there is no kind 9 of arguments"},
		"no buffer":          {new(list).write(3, 0, "x"), "command 0, write: there is no buffer 3"},
		"buffer twice":       {new(list).buffer(1, 8), "command 0, buffer: there is a buffer 1 already: free it, or choose another number"},
		"empty buffer":       {new(list).buffer(2, 0), "command 0, buffer: a buffer has 1 byte at least"},
		"too large a buffer": {new(list).buffer(2, 1<<60), "are more than the device's memory for this lease, 64MiB"},
		"beyond its end":     {new(list).write(1, 60, "hello"), "command 0, write: 5 bytes at 60 lie outside of buffer 1, which has 64"},
		"far beyond its end": {new(list).read(1, 1<<63, 8), "command 0, read: 8 bytes at 9223372036854775808 lie outside of buffer 1, which has 64"},
		"no memory":          {new(list).writeFrom(1, 0, 90, 20), "command 0, write: the place lies outside of the memory"},
		"no program":         {new(list).launch(8, "add", 1, 0, 0), "command 0, launch of add: there is no program 8"},
		"program twice":      {new(list).program(1, source, ""), "command 0, program: there is a program 1 already: choose another number"},
		"no kernel":          {new(list).launch(1, "sub", 1, 0, 0), "command 0, launch of sub: program 1 has no such kernel: it has add, reverse, spin"},
		"arguments":          {new(list).launch(1, "add", 1, 0, 1).mem(1), "command 0, launch of add: 1 arguments for a kernel that has 2"},
		"argument's buffer":  {new(list).launch(1, "add", 1, 0, 2).mem(4).scalar("four"), "command 0, launch of add: argument 0: there is no buffer 4"},
		"no buffer for it":   {new(list).launch(1, "add", 1, 0, 2).scalar("12345678").scalar("four"), "command 0, launch of add: argument 0: the kernel wants a buffer"},
		"no value for it":    {new(list).launch(1, "add", 1, 0, 2).mem(1).mem(1), "command 0, launch of add: argument 1: the kernel wants a value"},
		"no local memory":    {new(list).launch(1, "reverse", 1, 0, 2).mem(1).scalar("four"), "command 0, launch of reverse: argument 1: the kernel wants local memory"},
		"argument's size":    {new(list).read(1, 0, 4).launch(1, "add", 1, 0, 2).mem(1).scalar("123456"), "command 1, launch of add: CL_INVALID_ARG_SIZE (-51)"},
		"work group":         {new(list).launch(1, "add", 16, 7, 2).mem(1).scalar("four").read(1, 0, 4), "command 0, launch of add: CL_INVALID_WORK_GROUP_SIZE (-54)"},
		"no OpenCL C":        {new(list).program(2, "kernel void x() { oh no }", ""), "command 0, program: CL_BUILD_PROGRAM_FAILURE (-11): the build's log:"},
		"too much to read":   {new(list).buffer(2, 32<<20).read(2, 0, 16<<20).read(2, 0, 1), "it reads 16777217 bytes into the result"},
	}
	each(t, func(t *testing.T, d *Device) {
		d.facts.Memory = 64 << 20
		h := holder(t, d)
		do(t, h, new(list).buffer(1, 64).write(1, 0, strings.Repeat("u", 64)).program(1, source, ""), nil)
		for name, test := range tests {
			_, err := h.Do(t.Context(), *test.list, memoryOf(make([]byte, 100)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v, want %s", name, err, test.want)
			}
			// A list that failed leaves all else as it was.
			if r := do(t, h, new(list).read(1, 60, 4), nil); string(r.Read) != "uuuu" {
				t.Errorf("%s: afterwards %q", name, r.Read)
			}
		}
		if len(h.buffers) != 1 || len(h.programs) != 1 || len(d.owners) != 0 || len(d.waits) != 0 {
			t.Errorf("%d buffers, %d programs, %d owners, %d waits are left", len(h.buffers), len(h.programs), len(d.owners), len(d.waits))
		}
	})
}

// What the device refuses is told by its name, and what depends on it is not.
func TestFullDevice(t *testing.T) {
	d := dial(t, Options{}, 1<<20)
	h := holder(t, d)
	_, err := h.Do(t.Context(), *new(list).buffer(1, 700<<10).buffer(2, 700<<10).write(2, 0, "x").read(2, 0, 8), nil)
	if !errors.Is(err, StatusError(-4)) || !strings.HasPrefix(err.Error(), "command 1, buffer: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4): ") {
		t.Errorf("got %v", err)
	}
	do(t, h, new(list).buffer(1, 700<<10).read(1, 0, 8), nil)
}

// Holders of one session know nothing of each other's numbers.
func TestHolders(t *testing.T) {
	d := dial(t, Options{Shared: true}, 0)
	var all sync.WaitGroup
	for n := range uint32(8) {
		all.Go(func() {
			h, err := d.Holder()
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Close()
			l := new(list).program(1, source, "").buffer(1, 4000).write(1, 0, words(1000, func(i int) uint32 { return n }))
			for range 10 {
				l.launch(1, "add", 1000, 0, 2).mem(1).scalar(words(1, func(int) uint32 { return n }))
			}
			r, err := h.Do(t.Context(), *l.read(1, 0, 4000), nil)
			if want := words(1000, func(int) uint32 { return 11 * n }); err != nil || string(r.Read) != want {
				t.Errorf("holder %d: %v", n, err)
			}
		})
	}
	all.Wait()
}

func TestEnd(t *testing.T) {
	lost := outboard.Errorf(outboard.SessionLost, "session", "the worker crashed")
	d := dial(t, Options{ExplainError: func(error) error { return lost }}, 0)
	h := holder(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !d.Stuck() {
			t.Error("the session counts as good")
		}
		if _, err := h.Do(t.Context(), *new(list).buffer(1, 64), nil); !errors.Is(err, lost) {
			t.Errorf("got %v, want %v", err, lost)
		}
	}
}
