package recording

import (
	"testing"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// A local run is recorded as the driver library would forward it: what the library knows sends no
// message, and what it can't know waits for the worker.
func TestLocalRunsAreWhatTheLibraryWouldForward(t *testing.T) {
	const kernel, buffer, queue, program, event = 0xc0, 0xb0, 0xa0, 0xd0, 0xe0
	const local, early, waited = trace.AnsweredLocally, trace.Early, trace.WaitedFor
	for _, test := range []struct {
		name  string
		calls []rawCall
		want  []trace.Class
	}{
		{"the same argument", []rawCall{
			{op: op(t, "clCreateKernel"), object: kernel},
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 1, detail: 77, forward: 88},
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 2, detail: 77, forward: 88},
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 1, detail: 77, forward: 88},
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 1, detail: 78, forward: 88},
			{op: op(t, "clCreateKernel"), object: kernel}, // another kernel at the same address
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 1, detail: 78, forward: 88},
		}, []trace.Class{early, early, early, local, early, early, early}},
		{"kernels that are created at once", []rawCall{
			{op: op(t, "clCreateKernelsInProgram")}, // how many there are
			{op: op(t, "clCreateKernelsInProgram"), forward: 128},
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 1, detail: 77, forward: 88},
			{op: op(t, "clRetainKernel"), object: kernel},
			{op: op(t, "clReleaseKernel"), object: kernel},
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 1, detail: 77, forward: 88},
			{op: op(t, "clReleaseKernel"), object: kernel},
			{op: op(t, "clCreateKernelsInProgram"), forward: 128}, // another kernel at the same address
			{op: op(t, "clSetKernelArg"), object: kernel, serial: 1, detail: 77, forward: 88},
		}, []trace.Class{local, early, early, local, local, local, early, early, early}},
		{"references", []rawCall{
			{op: op(t, "clCreateBuffer"), object: buffer},
			{op: op(t, "clRetainMemObject"), object: buffer},
			{op: op(t, "clReleaseMemObject"), object: buffer},
			{op: op(t, "clReleaseMemObject"), object: buffer},
			{op: op(t, "clReleaseDevice"), object: 0xdd},
		}, []trace.Class{early, local, local, early, local}},
		{"an event's references", []rawCall{
			{op: op(t, "clEnqueueNDRangeKernel"), queue: queue, event: event},
			{op: op(t, "clRetainEvent"), object: event},
			{op: op(t, "clReleaseEvent"), object: event},
			{op: op(t, "clReleaseEvent"), object: event},
		}, []trace.Class{early, local, local, early}},
		{"the worker's clock", []rawCall{
			{op: op(t, "clCreateCommandQueue"), queue: queue},
			{op: op(t, "clCreateCommandQueue"), queue: queue + 8, detail: queueProfiling},
			{op: op(t, "clCreateCommandQueue"), queue: queue + 16, detail: queueProfiling},
		}, []trace.Class{early, waited, early}},
		{"queues whose properties only the driver checks", []rawCall{
			{op: op(t, "clCreateCommandQueueWithProperties"), queue: queue, detail: queueAwaited, forward: 88},
			{op: op(t, "clCreateCommandQueueWithProperties"), queue: queue + 8, forward: 88},
			{op: op(t, "clCreateCommandQueueWithProperties"), flags: flagFailed, detail: queueAwaited, forward: 88},
			{op: op(t, "clCreateCommandQueueWithProperties"), flags: flagFailed, forward: 88},
			{op: op(t, "clCreateCommandQueue"), flags: flagFailed, detail: queueAwaited, forward: 64},
		}, []trace.Class{waited, early, waited, local, waited}},
		{"binaries", []rawCall{
			{op: op(t, "clGetProgramInfo"), object: program, detail: programBinarySizes, backward: 48},
			{op: op(t, "clGetProgramInfo"), object: program, detail: programBinaries, backward: 40},
			{op: op(t, "clGetProgramInfo"), object: program, detail: programBinaries, backward: 4096},
			{op: op(t, "clGetProgramInfo"), object: program, detail: 0x1162},
		}, []trace.Class{waited, local, waited, local}},
		{"formats and devices", []rawCall{
			{op: op(t, "clGetSupportedImageFormats"), detail: 2},
			{op: op(t, "clGetSupportedImageFormats"), detail: 2},
			{op: op(t, "clGetDeviceInfo"), detail: 0x1002},
			{op: op(t, "clGetDeviceInfo"), detail: 0x1031},
			{op: op(t, "clGetDeviceInfo"), detail: 0x4037},
		}, []trace.Class{waited, local, local, local, waited}},
		{"the formats of images", []rawCall{
			{op: op(t, "clCreateImage"), object: buffer, detail: 2},
			{op: op(t, "clCreateImage"), object: buffer + 8, detail: 2},
			{op: op(t, "clCreateImage"), object: buffer + 16, detail: 3}, // of another type
		}, []trace.Class{waited, early, waited}},
		{"formats that were listed", []rawCall{
			{op: op(t, "clGetSupportedImageFormats"), detail: 2},
			{op: op(t, "clCreateImage"), object: buffer, detail: 2},
		}, []trace.Class{waited, early}},
		{"calls that fail", []rawCall{
			{op: op(t, "clSetKernelArg"), flags: flagFailed, object: kernel, serial: 1, detail: 77},
			{op: op(t, "clEnqueueReadBuffer"), flags: flagFailed | flagBlocking, queue: queue},
			{op: op(t, "clCreateBuffer"), flags: flagFailed},
			{op: op(t, "clBuildProgram"), flags: flagFailed}, // the worker's compiler refuses it
		}, []trace.Class{local, local, local, waited}},
		{"shared virtual memory", []rawCall{
			{op: op(t, "clSVMAlloc"), flags: flagBlocking, object: buffer, forward: 48, backward: 40},
			{op: op(t, "clSetKernelArgSVMPointer"), object: kernel, serial: 1, detail: 77, forward: 56},
			{op: op(t, "clSetKernelArgSVMPointer"), object: kernel, serial: 1, detail: 77, forward: 56},
			{op: op(t, "clEnqueueSVMMap"), flags: flagBlocking, queue: queue, object: buffer, detail: mapRead | mapWrite, backward: 4096},
			{op: op(t, "clEnqueueSVMUnmap"), queue: queue, object: buffer},
			{op: op(t, "clEnqueueSVMMemcpy"), flags: flagBlocking, queue: queue, forward: 56, backward: 4096},
			{op: op(t, "clSVMFree"), object: buffer},
			{op: op(t, "clSVMFree")},
		}, []trace.Class{waited, early, local, waited, early, waited, early, local}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var raws [][]byte
			for i, c := range test.calls {
				c.number, c.begin, c.duration = uint64(i), 2000+int64(i)*100, 50
				raws = append(raws, call(c))
			}
			_, records, err := joined(t, trace.Local, nil, (&raw{}).chunk(threadStream, 1, 0, raws...).bytes())
			if err != nil || len(records) != len(test.want) {
				t.Fatalf("%d records, %v", len(records), err)
			}
			for i, r := range records {
				if r.Class != test.want[i] {
					t.Errorf("call %d is answered %v, want %v", i, r.Class, test.want[i])
				}
				if r.Class == local && r.Forward+r.Backward != 0 {
					t.Errorf("call %d sends %d and %d bytes and is answered locally", i, r.Forward, r.Backward)
				}
			}
		})
	}
}

// The contents of shared virtual memory are transferred by maps, unmaps and copies, in messages of the
// sizes that a leased device's library sends.
func TestBytesOfSharedVirtualMemory(t *testing.T) {
	const queue, pointer = 0xa0, 0xb0
	calls := []rawCall{
		{op: op(t, "clSVMAlloc"), flags: flagBlocking, forward: 48, backward: 40},
		{op: op(t, "clEnqueueSVMMap"), flags: flagBlocking, queue: queue, object: pointer, detail: mapWrite, backward: 4096},
		{op: op(t, "clEnqueueSVMUnmap"), queue: queue, object: pointer},
		{op: op(t, "clEnqueueSVMMap"), flags: flagBlocking, queue: queue, object: pointer, detail: mapRead, backward: 4096},
		{op: op(t, "clEnqueueSVMUnmap"), queue: queue, object: pointer}, // was only read
		{op: op(t, "clEnqueueSVMMemcpy"), queue: queue, forward: 56 + 4096},
		{op: op(t, "clEnqueueSVMMemFill"), queue: queue, forward: 64},
	}
	want := [][2]uint64{{80, 40}, {88, 32 + 4096}, {88 + 4096, 0}, {88, 32 + 4096}, {0, 0}, {88 + 4096, 0}, {96, 0}}
	var raws [][]byte
	for i, c := range calls {
		c.number, c.begin, c.duration = uint64(i), 2000+int64(i)*100, 50
		raws = append(raws, call(c))
	}
	_, records, err := joined(t, trace.Local, nil, (&raw{}).chunk(threadStream, 1, 0, raws...).bytes())
	if err != nil || len(records) != len(want) {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, r := range records {
		if got := [2]uint64{r.Forward, r.Backward}; got != want[i] {
			t.Errorf("call %d: %d bytes there and back, want %d", i, got, want[i])
		}
	}
}
