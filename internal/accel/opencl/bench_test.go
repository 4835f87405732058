package opencl

import (
	"testing"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// BenchmarkDriverCall is the cheapest real call: what the way into the driver costs.
func BenchmarkDriverCall(b *testing.B) {
	drv := needDriver(b)
	frame, err := driver.NewFrame()
	if err != nil {
		b.Fatal(err)
	}
	defer frame.Close()
	out, _ := frame.Bytes(8)
	found, err := listDevices(drv)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		drv.Call(fnClGetDeviceInfo, found[0].device, clDeviceMaxComputeUnits, 4, driver.Address(out), 0)
	}
}

func launcher(b *testing.B) (c *testClient, queue, kernel, mem uint64) {
	c = dial(b, Options{})
	context, queue := c.stage(0)
	_, kernel = c.kernel(context, "add", addOne)
	mem = c.buffer(context, 4096)
	c.setMem(kernel, 0, mem)
	c.launch(queue, kernel, 64, 0)
	c.finish(queue)
	return c, queue, kernel, mem
}

// BenchmarkLaunches is 1,000 launches in a row and a finish; an operation is one launch.
func BenchmarkLaunches(b *testing.B) {
	c, queue, kernel, _ := launcher(b)
	for b.Loop() {
		for range 1000 {
			c.launch(queue, kernel, 64, 0)
		}
		c.finish(queue)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/launch")
}

// BenchmarkLaunchesBare is the same without a worker.
func BenchmarkLaunchesBare(b *testing.B) {
	c, queue, kernel, _ := launcher(b)
	q, _ := c.worker.objects.table.Get(queue, kindQueue)
	k, _ := c.worker.objects.table.Get(kernel, kindKernel)
	size, err := driver.Alloc(8)
	if err != nil {
		b.Fatal(err)
	}
	defer driver.Free(size)
	size[0] = 64
	for b.Loop() {
		for range 1000 {
			c.worker.drv.Call(fnClEnqueueNDRangeKernel, q.Handle, k.Handle, 1, 0, driver.Address(size), 0, 0, 0, 0)
		}
		c.worker.drv.Call(fnClFinish, q.Handle)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/launch")
}

func BenchmarkLaunchFinish(b *testing.B) {
	c, queue, kernel, _ := launcher(b)
	for b.Loop() {
		c.launch(queue, kernel, 64, 0)
		c.finish(queue)
	}
}

func BenchmarkRead4(b *testing.B) {
	c, queue, _, mem := launcher(b)
	for b.Loop() {
		c.read(queue, mem, 4)
	}
}

func BenchmarkWriteRead4(b *testing.B) {
	c, queue, _, mem := launcher(b)
	data := make([]byte, 4)
	for b.Loop() {
		c.send(opClEnqueueWriteBuffer, &argsClEnqueueWriteBuffer{CommandQueue: queue, Buffer: mem, Size: 4}, data)
		c.read(queue, mem, 4)
	}
}

func BenchmarkWrite64MiB(b *testing.B) {
	c, queue, _, _ := launcher(b)
	context, _ := c.stage(0)
	const size = 64 << 20
	mem, data := c.buffer(context, size), make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		c.send(opClEnqueueWriteBuffer, &argsClEnqueueWriteBuffer{CommandQueue: queue, Buffer: mem, Size: size}, data)
		c.finish(queue)
	}
}
