package compute

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/opencl"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/shm"
)

func TestMain(m *testing.M) {
	// Kernels are compiled once for all tests of this machine and boot.
	if os.Getenv("POCL_CACHE_DIR") == "" {
		_ = os.Setenv("POCL_CACHE_DIR", os.TempDir()+"/outboard-test-pocl")
	}
	os.Exit(m.Run())
}

// system is the real driver, loaded once: drivers don't like to be unloaded.
var system = sync.OnceValues(func() (*driver.Table, error) {
	if err := driver.Clean(); err != nil {
		return nil, err
	}
	lib, err := driver.Open(opencl.Library)
	if err != nil {
		return nil, err
	}
	table := lib.Bind(opencl.Functions())
	devices, err := opencl.Probe(table)
	if err == nil && len(devices) == 0 {
		err = errors.New("the driver has no device")
	}
	return table, err
})

var callbacks = sync.OnceValue(driver.NewCallbacks)

// pair is both ends of a ring.
func pair(t testing.TB, area int) (near, far *shm.Ring) {
	t.Helper()
	near, err := shm.Create(area)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", near.File().Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if far, err = shm.Open(f, shm.Worker); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// dial begins a session with a worker in this process.
func dial(t testing.TB, opts Options, memory outboard.Bytes) *Device {
	t.Helper()
	table, err := system()
	need.Require(t, "opencl", err == nil, fmt.Sprint("install pocl-opencl-icd: ", err))
	near, far := pair(t, 1<<20)
	w, err := opencl.New(opencl.Options{Driver: table, Callbacks: callbacks(), Ring: far, IncludeDir: t.TempDir(), Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := w.Run(context.Background())
		_ = far.Fail(err)
		ended <- err
	}()
	opts.Ring = near
	d, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the worker ended with: %v", err)
		}
	})
	return d
}

func holder(t testing.TB, d *Device) *Holder {
	t.Helper()
	h, err := d.Holder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// list of commands, being written.
type list []byte

func (l *list) u8(n uint8) *list    { *l = append(*l, n); return l }
func (l *list) u32(n uint32) *list  { *l = binary.LittleEndian.AppendUint32(*l, n); return l }
func (l *list) u64(n uint64) *list  { *l = binary.LittleEndian.AppendUint64(*l, n); return l }
func (l *list) text(b string) *list { *l = append(*l.u32(uint32(len(b))), b...); return l }

func (l *list) buffer(number uint32, size uint64) *list { return l.u8(1).u32(number).u64(size) }

func (l *list) write(number uint32, offset uint64, b string) *list {
	return l.u8(2).u32(number).u64(offset).text(b)
}

func (l *list) program(number uint32, source, options string) *list {
	return l.u8(3).u32(number).text(source).text(options)
}

// launch begins a launch in one dimension of so many arguments.
func (l *list) launch(program uint32, kernel string, global, local uint64, args uint8) *list {
	return l.u8(4).u32(program).text(kernel).u8(1).u64(global).u64(local).u8(args)
}

func (l *list) scalar(b string) *list    { return l.u8(1).text(b) }
func (l *list) mem(number uint32) *list  { return l.u8(2).u32(number) }
func (l *list) local(size uint64) *list  { return l.u8(3).u64(size) }
func (l *list) free(number uint32) *list { return l.u8(6).u32(number) }

func (l *list) read(number uint32, offset uint64, size uint32) *list {
	return l.u8(5).u32(number).u64(offset).u32(size)
}

func (l *list) writeFrom(number uint32, offset uint64, at, size uint32) *list {
	return l.u8(7).u32(number).u64(offset).u32(at).u32(size)
}

func (l *list) readTo(number uint32, offset uint64, at, size uint32) *list {
	return l.u8(8).u32(number).u64(offset).u32(at).u32(size)
}

// do wants a list to be done.
func do(t testing.TB, h *Holder, l *list, memory Memory) Result {
	t.Helper()
	r, err := h.Do(t.Context(), *l, memory)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// memoryOf is a program's memory.
func memoryOf(b []byte) Memory {
	return func(at, size uint32) ([]byte, bool) {
		if uint64(at)+uint64(size) > uint64(len(b)) {
			return nil, false
		}
		return b[at : at+size], true
	}
}

// words are numbers as a device has them.
func words(n int, f func(i int) uint32) string {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, f(i))
	}
	return string(b)
}

const source = `
kernel void add(global uint *a, uint n) { a[get_global_id(0)] += n; }
kernel void reverse(global uint *a, local uint *l) {
	size_t i = get_local_id(0), n = get_local_size(0);
	l[i] = a[get_global_id(0)];
	barrier(CLK_LOCAL_MEM_FENCE);
	a[get_global_id(0)] = l[n - 1 - i];
}
kernel void spin(global volatile uint *a) { while (a[0] == 0); }
`
