package opencl

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// sharedMemoryClient is a client of a device with shared virtual memory.
func sharedMemoryClient(t *testing.T, opts Options) (c *testClient, context, queue uint64) {
	t.Helper()
	c = dial(t, opts)
	need.Require(t, "opencl", c.worker.device.sharesMemory, "install a driver whose device has shared virtual memory, as pocl-opencl-icd")
	context, queue = c.stage(0)
	return c, context, queue
}

// allocate returns the id and the address of shared virtual memory.
func (c *testClient) allocate(context, size, padding uint64) (status int32, id, address uint64) {
	c.t.Helper()
	id = c.id()
	status, body, _ := c.call(opSvmAlloc, &argsSvmAlloc{Context: context, Flags: 1, Size: size, Padding: padding, Result: id})
	if status == clSuccess {
		address = firstWord(body)
	}
	return status, id, address
}

func (c *testClient) free(id uint64) {
	c.send(opRelease, &argsRelease{Kind: uint32(kindMem), Object: id})
}

// setShared sets an argument to a place in shared virtual memory.
func (c *testClient) setShared(kernel uint64, index uint32, id, offset uint64) {
	c.send(opClSetKernelArg, &argsClSetKernelArg{
		Kernel: kernel, ArgIndex: index, ArgSize: 8, Form: formShared, Object: id, Value: binary.LittleEndian.AppendUint64(nil, offset),
	})
}

// failures are the statuses of the early calls that have failed so far.
func (c *testClient) failures() (all []int32) {
	c.t.Helper()
	c.must(opClock, &argsClock{})
	kept := c.notices[:0]
	for _, n := range c.notices {
		var f argsFailed
		if n.op != opFailed {
			kept = append(kept, n)
		} else if err := f.decode(n.body); err != nil {
			c.t.Fatal(err)
		} else {
			all = append(all, f.Status)
		}
	}
	c.notices = kept
	return all
}

// TestSharedMemory: a kernel finds by pointer what was written to an allocation's buffer, and the other
// way round.
func TestSharedMemory(t *testing.T) {
	c, context, queue := sharedMemoryClient(t, Options{})
	_, kernel := c.kernel(context, "k", "kernel void k(global int *a, global int *b) { a[0] = b[3] + 1; }")
	status, a, _ := c.allocate(context, 4096, 4096)
	status2, b, _ := c.allocate(context, 4096, 4096)
	if status != clSuccess || status2 != clSuccess {
		t.Fatalf("%d, %d", status, status2)
	}
	content := make([]byte, 4096)
	content[100+12] = 41
	c.send(opClEnqueueWriteBuffer, &argsClEnqueueWriteBuffer{CommandQueue: queue, Buffer: b, Size: 4096}, content)
	c.setShared(kernel, 0, a, 64)
	c.setShared(kernel, 1, b, 100)
	c.send(opClSetKernelExecInfo, &argsClSetKernelExecInfo{Kernel: kernel, ParamName: clKernelExecInfoSVMPtrs, Objects: []uint64{a, b}})
	c.send(opClEnqueueNDRangeKernel, &argsClEnqueueNDRangeKernel{CommandQueue: queue, Kernel: kernel, WorkDim: 1, GlobalWorkSize: []uint64{1}})
	if got := c.read(queue, a, 4096); got[64] != 42 {
		t.Errorf("got %d, want 42", got[64])
	}
	c.noFailures()
}

// TestSharedMemoryCounts: allocations count against the lease with their padding until they are freed,
// also while a user event keeps the worker from freeing them.
func TestSharedMemoryCounts(t *testing.T) {
	c, context, _ := sharedMemoryClient(t, Options{Memory: 10 << 20})
	c.flags = 0
	if status, _, _ := c.allocate(context, 9<<20, 2<<20); status != clAllocationFailure {
		t.Errorf("more than the lease has: %d", status)
	}
	if used := c.worker.memory.inUse(); used != 0 {
		t.Errorf("%d bytes are used after a failure", used)
	}
	gate := c.id()
	c.send(opClCreateUserEvent, &argsClCreateUserEvent{Context: context, Result: gate})
	for range 2 {
		status, id, _ := c.allocate(context, 4<<20, 1<<20)
		if status != clSuccess {
			t.Fatalf("within the lease: %d", status)
		}
		c.free(id)
	}
	if status, _, _ := c.allocate(context, 1<<20, 0); status != clAllocationFailure {
		t.Errorf("while freed memory may be in use: %d", status)
	}
	c.send(opClSetUserEventStatus, &argsClSetUserEventStatus{Event: gate})
	status, id, _ := c.allocate(context, 9<<20, 1<<20)
	if status != clSuccess {
		t.Errorf("after the event: %d", status)
	}
	c.free(id)
	c.must(opClock, &argsClock{})
	if used := c.worker.memory.inUse(); used != 0 {
		t.Errorf("%d bytes are used at the end", used)
	}
}

// deviceFact returns a number of the device from a snapshot's facts.
func deviceFact(facts []byte, op uint16, param uint32) (value uint64, ok bool) {
	for rest := facts; len(rest) >= 32; {
		head, size := rest[:32], uint64(binary.LittleEndian.Uint32(rest[28:]))
		hasOp, hasParam := binary.LittleEndian.Uint16(head) == op, binary.LittleEndian.Uint32(head[4:]) == param
		if hasOp && hasParam && firstWord(head[8:]) == deviceID {
			return firstWord(rest[32:]), true
		}
		rest = rest[32+(size+7)&^7:]
	}
	return 0, false
}

// TestSharedMemoryIsOffered: a driver library without svm_alloc, which shows the answer to
// clGetDeviceInfo to programs, finds no shared virtual memory; one with svm_alloc finds the offer.
func TestSharedMemoryIsOffered(t *testing.T) {
	c := dial(t, Options{})
	need.Require(t, "opencl", c.worker.device.sharesMemory, "install a driver whose device has shared virtual memory, as pocl-opencl-icd")
	var s argsSnapshot
	if err := s.decode(c.await(opSnapshot).body); err != nil {
		t.Fatal(err)
	}
	if v, ok := deviceFact(s.Facts, opClGetDeviceInfo, clDeviceSVMCapabilities); !ok || v != 0 {
		t.Errorf("the device has shared virtual memory %d, %v", v, ok)
	}
	if v, ok := deviceFact(s.Facts, opSvmAlloc, clDeviceSVMCapabilities); !ok || v != svmCoarseGrainBuffer {
		t.Errorf("svm_alloc is offered with %d, %v", v, ok)
	}
}

// TestSharedMemoryRefuses: nothing that a client sends makes a pointer outside of its allocations.
func TestSharedMemoryRefuses(t *testing.T) {
	c, context, queue := sharedMemoryClient(t, Options{Memory: 1 << 30})
	_, kernel := c.kernel(context, "k", "kernel void k(global int *a, global int *b) { a[0] = b[0]; }")
	_, id, _ := c.allocate(context, 100, 4096)
	plain := c.buffer(context, 100)
	for name, a := range map[string]*argsSvmAlloc{
		"no size": {Context: context, Flags: 1}, "vast": {Context: context, Flags: 1, Size: math.MaxUint64 - 5}, "wraps": {Context: context, Flags: 1, Size: math.MaxUint64, Padding: 2},
		"padding": {Context: context, Flags: 1, Size: 1, Padding: maxPadding + 1}, "fine-grained": {Context: context, Flags: 1 | 1<<10, Size: 1},
		"no context": {Context: queue, Flags: 1, Size: 1},
	} {
		a.Result = c.id()
		if status, _, _ := c.call(opSvmAlloc, a); status == clSuccess {
			t.Errorf("%s: allocated", name)
		}
		c.free(a.Result)
	}
	for name, send := range map[string]func(){
		"beyond the end":    func() { c.setShared(kernel, 0, id, 101) },
		"before the start":  func() { c.setShared(kernel, 0, id, math.MaxUint64) },
		"of a plain buffer": func() { c.setShared(kernel, 0, plain, 0) },
		"of nothing":        func() { c.setShared(kernel, 0, 12345, 0) },
		"no such argument":  func() { c.setShared(kernel, 9, id, 0) },
		"info of no kernel": func() {
			c.send(opClSetKernelExecInfo, &argsClSetKernelExecInfo{Kernel: id, ParamName: clKernelExecInfoSVMPtrs, Objects: []uint64{id}})
		},
		"info of a buffer": func() {
			c.send(opClSetKernelExecInfo, &argsClSetKernelExecInfo{Kernel: kernel, ParamName: clKernelExecInfoSVMPtrs, Objects: []uint64{plain}})
		},
		"another info": func() {
			c.send(opClSetKernelExecInfo, &argsClSetKernelExecInfo{Kernel: kernel, ParamName: 1, Objects: []uint64{id}})
		},
	} {
		if send(); len(c.failures()) != 1 {
			t.Errorf("%s: no failure", name)
		}
	}
	c.setShared(kernel, 0, id, 100) // the end
	c.setShared(kernel, 1, 0, 0)    // NULL
	c.send(opClSetKernelExecInfo, &argsClSetKernelExecInfo{Kernel: kernel, ParamName: clKernelExecInfoSVMPtrs, Objects: []uint64{id}})
	c.send(opClSetKernelExecInfo, &argsClSetKernelExecInfo{Kernel: kernel, ParamName: clKernelExecInfoSVMPtrs}) // no longer
	c.free(id)
	if all := c.failures(); len(all) != 0 {
		t.Errorf("failures %v", all)
	}
	c.setShared(kernel, 0, id, 0)
	if len(c.failures()) != 1 {
		t.Error("freed memory is an argument")
	}
}
