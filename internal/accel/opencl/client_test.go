package opencl

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/shm"
)

// system is the real driver, loaded once: drivers don't like to be unloaded.
var system = sync.OnceValues(func() (*driver.Table, error) {
	if err := driver.Clean(); err != nil {
		return nil, err
	}
	lib, err := driver.Open(Library)
	if err != nil {
		return nil, err
	}
	return lib.Bind(Functions()), nil
})

var callbacks = sync.OnceValue(driver.NewCallbacks)

func TestMain(m *testing.M) {
	// Kernels are compiled once for all tests of this machine and boot.
	if os.Getenv("POCL_CACHE_DIR") == "" {
		_ = os.Setenv("POCL_CACHE_DIR", os.TempDir()+"/outboard-test-pocl")
	}
	os.Exit(m.Run())
}

// needDriver skips the test on a machine without OpenCL, unless told not to.
func needDriver(t testing.TB) *driver.Table {
	t.Helper()
	table, err := system()
	if err == nil {
		var devices []outboard.Device
		if devices, err = Probe(table); err == nil && len(devices) == 0 {
			err = outboard.Errorf(outboard.NoDevice, "probe", "no device")
		}
	}
	need.Require(t, "opencl", err == nil, "install an OpenCL driver (`make test` does): "+fmt.Sprint(err))
	return table
}

// testClient speaks to a worker as the driver library does.
type testClient struct {
	t       testing.TB
	ring    *shm.Ring
	in      *session.Reader
	out     *session.Writer
	flags   uint16
	calls   uint32
	serial  uint64
	ids     uint64
	notices []notice
	parts   map[[2]uint64][]byte // bulk of which more is to come
	ended   chan error
	worker  *Worker
}

type notice struct {
	op   uint16
	body []byte
	bulk []byte
}

// encoder is what all generated arguments are.
type encoder interface{ encode([]byte) []byte }

// dial starts a worker in this process.
func dial(t testing.TB, opts Options) *testClient {
	t.Helper()
	near, err := shm.Create(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile("/proc/self/fd/"+itoa(int(near.File().Fd())), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	far, err := shm.Open(f, shm.Worker)
	if err != nil {
		t.Fatal(err)
	}
	opts.Ring = far
	if opts.Driver == nil {
		opts.Driver, opts.Callbacks = needDriver(t), callbacks()
	}
	if opts.IncludeDir == "" {
		opts.IncludeDir = t.TempDir()
	}
	w, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	c := &testClient{t: t, ring: near, flags: session.Alone, ids: 0xff, ended: make(chan error, 1), worker: w, parts: map[[2]uint64][]byte{}}
	if c.in, err = session.NewReader(near, near.Area()); err != nil {
		t.Fatal(err)
	}
	c.out = session.NewWriter(near, near.Area())
	go func() {
		err := w.Run(context.Background())
		_ = far.Fail(err)
		c.ended <- err
	}()
	t.Cleanup(func() {
		_ = near.Close(shm.Done)
		if err := <-c.ended; err != nil {
			t.Errorf("the worker ended with: %v", err)
		}
	})
	return c
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func (c *testClient) id() uint64 {
	c.ids++
	return c.ids
}

// send sends a call for whose answer nobody waits, and returns its serial.
func (c *testClient) send(op uint16, args encoder, bulk ...[]byte) uint64 {
	c.t.Helper()
	if err := c.out.Send(session.Header{Op: op, Flags: c.flags}, args.encode(nil), bulk...); err != nil {
		c.t.Fatal(err)
	}
	c.serial++
	return c.serial
}

// call waits for the answer.
func (c *testClient) call(op uint16, args encoder, bulk ...[]byte) (int32, []byte, []byte) {
	c.t.Helper()
	return c.reply(c.begin(op, args, bulk...))
}

func (c *testClient) begin(op uint16, args encoder, bulk ...[]byte) uint32 {
	c.t.Helper()
	c.calls++
	if err := c.out.Send(session.Header{Op: op, Flags: c.flags | session.WantReply, Call: c.calls}, args.encode(nil), bulk...); err != nil {
		c.t.Fatal(err)
	}
	c.serial++
	return c.calls
}

// reply reads until the answer to a call comes, and keeps the notices before it.
func (c *testClient) reply(call uint32) (int32, []byte, []byte) {
	c.t.Helper()
	for {
		h, body, bulk := c.receive()
		if h.Flags&session.IsReply == 0 {
			c.notices = append(c.notices, notice{h.Op, body, bulk})
			continue
		}
		if h.Call != call {
			c.t.Fatalf("reply to call %d, want %d", h.Call, call)
		}
		return h.Status, body, bulk
	}
}

// receiveReply reads until any reply comes, and keeps the notices before it.
func (c *testClient) receiveReply() (session.Header, []byte, []byte) {
	c.t.Helper()
	for {
		h, body, bulk := c.receive()
		if h.Flags&session.IsReply != 0 {
			return h, body, bulk
		}
		c.notices = append(c.notices, notice{h.Op, body, bulk})
	}
}

// receive puts together what comes in several messages; others may come between.
func (c *testClient) receive() (session.Header, []byte, []byte) {
	c.t.Helper()
	h, body, bulk := c.receiveOne()
	key := [2]uint64{uint64(h.Call), 0}
	if h.Call == 0 && len(body) > 0 {
		key[1] = firstWord(body)
	}
	if h.Flags&session.More != 0 {
		c.parts[key] = append(c.parts[key], bulk...)
		return c.receive()
	}
	if h.Op != opData && h.Flags&session.IsReply == 0 {
		return h, body, bulk
	}
	bulk = append(c.parts[key], bulk...)
	delete(c.parts, key)
	return h, body, bulk
}

func (c *testClient) receiveOne() (session.Header, []byte, []byte) {
	c.t.Helper()
	h, body, err := c.in.Next()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	body = append([]byte(nil), body...)
	bulk := make([]byte, 0, h.Bulk)
	for {
		p, err := c.in.NextBulk()
		if err != nil {
			return h, body, bulk
		}
		bulk = append(bulk, p...)
	}
}

// await reads until a notice of the given op is there.
func (c *testClient) await(op uint16) notice {
	c.t.Helper()
	for {
		for i, n := range c.notices {
			if n.op == op {
				c.notices = append(c.notices[:i:i], c.notices[i+1:]...)
				return n
			}
		}
		h, body, bulk := c.receive()
		c.notices = append(c.notices, notice{h.Op, body, bulk})
	}
}

// must is call for what has to succeed.
func (c *testClient) must(op uint16, args encoder) []byte {
	c.t.Helper()
	status, body, _ := c.call(op, args)
	if status != clSuccess {
		c.t.Fatalf("op %#x: error %d", op, status)
	}
	return body
}

// noFailures fails the test when an early call has failed.
func (c *testClient) noFailures() {
	c.t.Helper()
	for _, n := range c.notices {
		if n.op == opFailed {
			var f argsFailed
			if err := f.decode(n.body); err != nil {
				c.t.Fatal(err)
			}
			c.t.Errorf("message %d, op %#x failed: %d", f.Serial, f.Op, f.Status)
		}
	}
}

// stage is a context with a queue.
func (c *testClient) stage(queueProperties uint64) (context, queue uint64) {
	context, queue = c.id(), c.id()
	c.send(opClCreateContext, &argsClCreateContext{Devices: []uint64{deviceID}, Result: context})
	c.send(opClCreateCommandQueue, &argsClCreateCommandQueue{Context: context, Device: deviceID, Properties: queueProperties, Result: queue})
	return context, queue
}

func (c *testClient) buffer(context, size uint64) uint64 {
	id := c.id()
	c.send(opClCreateBuffer, &argsClCreateBuffer{Context: context, Flags: 1, Size: size, Result: id})
	return id
}

// kernel builds a program and makes its one kernel.
func (c *testClient) kernel(context uint64, name, source string) (program, kernel uint64) {
	c.t.Helper()
	program, kernel = c.id(), c.id()
	c.send(opClCreateProgramWithSource, &argsClCreateProgramWithSource{Context: context, Source: []byte(source), Result: program})
	c.must(opClBuildProgram, &argsClBuildProgram{Program: program})
	c.send(opClCreateKernel, &argsClCreateKernel{Program: program, KernelName: text{name, true}, Result: kernel})
	return program, kernel
}

func (c *testClient) setMem(kernel uint64, index uint32, mem uint64) {
	c.send(opClSetKernelArg, &argsClSetKernelArg{Kernel: kernel, ArgIndex: index, ArgSize: 8, Form: formMem, Object: mem})
}

func (c *testClient) launch(queue, kernel, items, event uint64, waits ...uint64) uint64 {
	return c.send(opClEnqueueNDRangeKernel, &argsClEnqueueNDRangeKernel{
		CommandQueue: queue, Kernel: kernel, WorkDim: 1, GlobalWorkSize: []uint64{items}, EventWaitList: waits, Event: event,
	})
}

func (c *testClient) finish(queue uint64) {
	c.t.Helper()
	c.must(opClFinish, &argsClFinish{CommandQueue: queue})
}

func (c *testClient) read(queue, mem, size uint64) []byte {
	c.t.Helper()
	status, _, data := c.call(opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: queue, Buffer: mem, BlockingRead: 1, Size: size})
	if status != clSuccess || uint64(len(data)) != size {
		c.t.Fatalf("read: error %d, %d bytes of %d", status, len(data), size)
	}
	return data
}

func words32(n int, f func(i int) uint32) []byte {
	b := make([]byte, 0, 4*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, f(i))
	}
	return b
}

const addOne = `kernel void add(global uint *a) { a[get_global_id(0)] += 1; }`
