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
		{"binaries", []rawCall{
			{op: op(t, "clGetProgramInfo"), object: program, detail: programBinarySizes, backward: 48},
			{op: op(t, "clGetProgramInfo"), object: program, detail: programBinaries, backward: 40},
			{op: op(t, "clGetProgramInfo"), object: program, detail: programBinaries, backward: 4096},
			{op: op(t, "clGetProgramInfo"), object: program, detail: 0x1162},
		}, []trace.Class{waited, local, waited, local}},
		{"formats and devices", []rawCall{
			{op: op(t, "clGetSupportedImageFormats"), object: 1, detail: 2},
			{op: op(t, "clGetSupportedImageFormats"), object: 1, detail: 2},
			{op: op(t, "clGetDeviceInfo"), detail: 0x1002},
			{op: op(t, "clGetDeviceInfo"), detail: 0x1031},
			{op: op(t, "clGetDeviceInfo"), detail: 0x4037},
		}, []trace.Class{waited, local, local, local, waited}},
		{"the formats of images", []rawCall{
			{op: op(t, "clCreateImage"), object: buffer},
			{op: op(t, "clCreateImage"), object: buffer + 8},
		}, []trace.Class{waited, early}},
		{"formats that were listed", []rawCall{
			{op: op(t, "clGetSupportedImageFormats"), object: 1, detail: 2},
			{op: op(t, "clCreateImage"), object: buffer},
		}, []trace.Class{waited, early}},
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
