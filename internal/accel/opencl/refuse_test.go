package opencl

import (
	"encoding/binary"
	"testing"
)

// TestDriverIsSpared: what is known to crash a driver never gets there, and the
// session goes on.
func TestDriverIsSpared(t *testing.T) {
	c := dial(t, Options{})
	context, queue := c.stage(0)
	mem, image := c.buffer(context, 4096), c.id()
	_, greedy := c.kernel(context, "k", `kernel void k(local uint *r, global uint *a) { r[get_local_id(0)] = a[0]; a[0] = r[0]; }`)
	c.send(opClSetKernelArg, &argsClSetKernelArg{Kernel: greedy, ArgIndex: 0, ArgSize: 1 << 30, Form: formLocal})
	c.setMem(greedy, 1, mem)
	_, plain := c.kernel(context, "add", addOne)
	c.setMem(plain, 0, mem)
	desc := make([]byte, imageDescSize)
	binary.LittleEndian.PutUint32(desc, 0x10F1)
	desc[8], desc[16], desc[56] = 64, 64, 7
	tests := map[string]struct {
		op   uint16
		args encoder
		want int32
	}{
		"too much local memory": {opClEnqueueNDRangeKernel, &argsClEnqueueNDRangeKernel{
			CommandQueue: queue, Kernel: greedy, WorkDim: 1, GlobalWorkSize: []uint64{1},
		}, clOutOfResources},
		"no global size": {opClEnqueueNDRangeKernel, &argsClEnqueueNDRangeKernel{CommandQueue: queue, Kernel: plain, WorkDim: 1}, clInvalidGlobalWorkSize},
		"an image with levels": {opClCreateImage, &argsClCreateImage{
			Context: context, Flags: 1, ImageFormat: words32(2, func(i int) uint32 { return []uint32{0x10B5, 0x10DA}[i] }), ImageDesc: desc, Result: image,
		}, clInvalidImageDescriptor},
		"no origin": {opClEnqueueCopyBufferRect, &argsClEnqueueCopyBufferRect{
			CommandQueue: queue, SrcBuffer: mem, DstBuffer: mem, DstOrigin: []uint64{0, 0, 0}, Region: []uint64{1, 1, 1},
		}, clInvalidValue},
		"a short region": {opClEnqueueCopyBufferRect, &argsClEnqueueCopyBufferRect{
			CommandQueue: queue, SrcBuffer: mem, DstBuffer: mem, SrcOrigin: []uint64{0, 0, 0}, DstOrigin: []uint64{64, 0, 0}, Region: []uint64{1, 1},
		}, clInvalidValue},
		"no pattern":  {opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: queue, Buffer: mem, Size: 64}, clInvalidValue},
		"no info":     {opClCreateSubBuffer, &argsClCreateSubBuffer{Buffer: mem, Flags: 1, BufferCreateType: 0x1220, Result: c.id()}, clInvalidValue},
		"no name":     {opClCreateKernel, &argsClCreateKernel{Program: 1, Result: c.id()}, invalid[kindProgram]},
		"no lists":    {opClEnqueueMigrateMemObjects, &argsClEnqueueMigrateMemObjects{CommandQueue: queue}, clInvalidValue},
		"no events":   {opClWaitForEvents, &argsClWaitForEvents{}, clInvalidValue},
		"no colour":   {opClEnqueueFillImage, &argsClEnqueueFillImage{CommandQueue: queue, Image: mem, Origin: []uint64{0, 0, 0}, Region: []uint64{1, 1, 1}}, clInvalidValue},
		"no devices":  {opClCreateContext, &argsClCreateContext{Result: c.id()}, clInvalidValue},
		"no queue":    {opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{Buffer: mem, Pattern: []byte{1}, Size: 64}, invalid[kindQueue]},
		"no kernel":   {opClEnqueueNDRangeKernel, &argsClEnqueueNDRangeKernel{CommandQueue: queue, WorkDim: 1, GlobalWorkSize: []uint64{1}}, invalid[kindKernel]},
		"no context":  {opClCreateBuffer, &argsClCreateBuffer{Flags: 1, Size: 64, Result: c.id()}, invalid[kindContext]},
		"no memory":   {opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{CommandQueue: queue, BlockingRead: 1, Size: 4}, invalid[kindMem]},
		"no program":  {opClBuildProgram, &argsClBuildProgram{}, invalid[kindProgram]},
		"no programs": {opClLinkProgram, &argsClLinkProgram{Context: context, Result: c.id()}, clInvalidValue},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status, _, _ := c.call(test.op, test.args)
			if status != test.want {
				t.Errorf("got %d, want %d", status, test.want)
			}
		})
	}
	c.launch(queue, plain, 16, 0)
	c.finish(queue)
	c.noFailures()
}
