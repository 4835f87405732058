package opencl

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// fakeDriver is a device that does nothing, and remembers which calls made
// and changed objects, or gave commands, in words.
type fakeDriver struct {
	mu     sync.Mutex
	next   uintptr
	labels map[uintptr]string
	calls  []string
}

func (f *fakeDriver) table() *driver.Table {
	f.labels = map[uintptr]string{0: "null"}
	return driver.Fake(Functions(), f.call)
}

func (f *fakeDriver) make(label string) uintptr {
	f.next++
	handle := 0x1000 + f.next
	f.labels[handle] = label
	return handle
}

func (f *fakeDriver) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func store(addr uintptr, v uint64, size int) {
	if addr != 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		copy(driver.Bytes(addr, size), b[:])
	}
}

func (f *fakeDriver) call(fn int, a []uintptr) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := functionNames[fn]
	switch {
	case fn == fnClGetPlatformIDs:
		store(a[1], uint64(f.make("platform")), 8)
		store(a[2], 1, 4)
	case fn == fnClGetDeviceIDs:
		store(a[3], uint64(f.make("device")), 8)
		store(a[4], 1, 4)
	case strings.HasPrefix(name, "clGet") && strings.HasSuffix(name, "Info"):
		n := len(a)
		if fn == fnClGetPlatformInfo && a[1] == clPlatformVersion {
			copy(driver.Bytes(a[n-2], 11), "OpenCL 3.0\x00")
			store(a[n-1], 11, 8)
			return 0
		}
		store(a[n-2], 0, min(8, int(a[n-3])))
		store(a[n-1], 8, 8)
	case fn == fnClCreateBuffer:
		f.note("buffer of %d in %s", a[2], f.labels[a[0]])
		return f.make(fmt.Sprintf("buffer of %d", a[2]))
	case strings.HasPrefix(name, "clCreate"):
		f.note("%s", name)
		return f.make(name)
	case fn == fnClSetKernelArg:
		f.note("argument %d of %s is %s", a[1], f.labels[a[0]], f.labels[uintptr(firstWord(driver.Bytes(a[3], 8)))])
	case fn == fnClBuildProgram:
		f.note("build %s", f.labels[a[0]])
	case fn == fnClEnqueueNDRangeKernel:
		f.note("launch %s with %d", f.labels[a[1]], firstWord(driver.Bytes(a[4], 8)))
	case strings.HasPrefix(name, "clRelease"):
		f.note("release %s", f.labels[a[0]])
	}
	return 0
}

// TestReplay: the log of a session, replayed on a fresh driver, makes its living
// objects as they are, and the commands that nobody has waited for.
func TestReplay(t *testing.T) {
	first := &fakeDriver{}
	log := session.NewLog(1 << 20)
	c := dial(t, Options{Driver: first.table(), Log: log})
	context, queue := c.stage(0)
	gone, kept := c.buffer(context, 100), c.buffer(context, 200)
	program, kernel := c.kernel(context, "k", "kernel void k(global int *a) {}")
	c.setMem(kernel, 0, gone)
	c.setMem(kernel, 0, kept)
	c.send(opRelease, &argsRelease{Kind: uint32(kindMem), Object: gone})
	c.send(opRelease, &argsRelease{Kind: uint32(kindProgram), Object: program})
	c.launch(queue, kernel, 10, 0)
	c.finish(queue)
	c.launch(queue, kernel, 20, 0)
	c.must(opClock, &argsClock{})
	_ = c.ring.Close(0)
	if err := <-c.ended; err != nil {
		t.Fatal(err)
	}
	c.ended <- nil

	second := &fakeDriver{}
	r := dial(t, Options{Driver: second.table()})
	for _, record := range log.Records() {
		h := session.Header{Op: record.Op, Flags: record.Flags, Call: record.Call}
		if err := r.out.Send(h, record.Body); err != nil {
			t.Fatal(err)
		}
		if h.Flags&session.WantReply != 0 {
			r.reply(h.Call)
		}
	}
	r.must(opClock, &argsClock{})
	want := []string{
		"clCreateContext", "clCreateCommandQueue", "buffer of 200 in clCreateContext", "clCreateProgramWithSource",
		"build clCreateProgramWithSource", "clCreateKernel", "argument 0 of clCreateKernel is buffer of 200",
		"release clCreateProgramWithSource", "launch clCreateKernel with 20",
	}
	second.mu.Lock()
	defer second.mu.Unlock()
	if diff := cmp.Diff(second.calls, want); diff != "" {
		t.Error(diff)
	}
	if !log.Complete() {
		t.Error("the log is truncated")
	}
}
