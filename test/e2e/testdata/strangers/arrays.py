"""What users of PyOpenCL do: arrays, generated kernels, images, events, maps, threads.

Prints what must be the same on every device of one kind.
"""
import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.reduction import ReductionKernel

rng = np.random.default_rng(7)
context = cl.create_some_context(interactive=False)
device = context.devices[0]
queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
print(device.name, device.version, device.max_compute_units)


def arrays():
    a, b = (rng.random(100003).astype(np.float32) for _ in range(2))
    x, y = cla.to_device(queue, a), cla.to_device(queue, b)
    print("sum", ((x + y).get() == a + b).all(), "slice", (x[10:200].get() == a[10:200]).all())
    linear = ElementwiseKernel(context, "float k, float *x, float *y, float *z", "z[i] = k * x[i] + y[i]", "linear")
    z = cla.empty_like(x)
    event = linear(5, x, y, z)
    event.wait()
    times = event.profile
    print("elementwise", np.abs(z.get() - (5 * a + b)).max() < 1e-5, times.end >= times.start >= times.submit >= times.queued > 0)
    dot = ReductionKernel(context, np.float32, neutral="0", reduce_expr="a+b", map_expr="x[i]*y[i]", arguments="__global float *x, __global float *y")
    print("reduction", abs(dot(x, y).get() - np.dot(a, b)) < 1)


def images():
    if not device.image_support:
        return
    f = rng.random((32, 32)).astype(np.float32)
    source = cl.image_from_array(context, f, 1)
    target = cl.Image(context, cl.mem_flags.WRITE_ONLY, cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT), shape=(32, 32))
    program = cl.Program(context, """
        __kernel void blur(read_only image2d_t s, write_only image2d_t d, sampler_t at) {
            int2 c = (int2)(get_global_id(0), get_global_id(1));
            float4 v = 0;
            for (int i = -1; i < 2; i++)
                for (int j = -1; j < 2; j++)
                    v += read_imagef(s, at, c + (int2)(i, j));
            write_imagef(d, c, v / 9);
        }""").build()
    sampler = cl.Sampler(context, False, cl.addressing_mode.CLAMP_TO_EDGE, cl.filter_mode.NEAREST)
    program.blur(queue, (32, 32), None, source, target, sampler)
    got = np.empty_like(f)
    cl.enqueue_copy(queue, got, target, origin=(0, 0), region=(32, 32))
    e = np.pad(f, 1, mode="edge")
    print("blur", np.abs(got - sum(e[i:i + 32, j:j + 32] for i in range(3) for j in range(3)) / 9).max() < 1e-5)


program = cl.Program(context, "__kernel void add(__global int *x, int k) { x[get_global_id(0)] += k; }").build()


def events():
    x = cla.zeros(queue, 1000, np.int32)
    queue.finish()
    gate, done, hits = cl.UserEvent(context), threading.Event(), []
    event = program.add(queue, (1000,), None, x.data, np.int32(3), wait_for=[gate])
    event.set_callback(cl.command_execution_status.COMPLETE, lambda status: (hits.append(status), done.set()))
    print("held", event.command_execution_status > 0, hits)
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    print("callback", done.wait(60), hits, (x.get() == 3).all())
    disorder = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    first = program.add(disorder, (1000,), None, x.data, np.int32(1))
    marker = cl.enqueue_marker(disorder, wait_for=[first])
    cl.wait_for_events([program.add(disorder, (1000,), None, x.data, np.int32(1), wait_for=[marker])])
    print("out of order", (x.get() == 5).all())


def errors():
    kernel = cl.Kernel(program, "add")
    for what, call in {
        "build": lambda: cl.Program(context, "__kernel void f() { nothing_like_it; }").build(),
        "argument": lambda: kernel.set_arg(7, np.int32(1)),
        "kernel": lambda: cl.Kernel(program, "subtract"),
        "size": lambda: cl.Buffer(context, cl.mem_flags.READ_WRITE, 0),
    }.items():
        try:
            call()
            print(what, "no error")
        except cl.Error as error:
            print(what, error.code, "nothing_like_it" in str(error))


def memory():
    flags = cl.mem_flags
    buffer = cl.Buffer(context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, 4096)
    mapped, _ = cl.enqueue_map_buffer(queue, buffer, cl.map_flags.WRITE, 0, (1024,), np.int32)
    with mapped.base:
        mapped[:] = np.arange(1024)
    got = np.empty(1024, np.int32)
    cl.enqueue_copy(queue, got, buffer)
    print("map", (got == np.arange(1024)).all())
    with cl.CommandQueue(context) as other:
        cl.enqueue_fill_buffer(other, buffer, np.int32(9), 0, 4096).wait()
    cl.enqueue_copy(queue, got, buffer)
    print("fill", (got == 9).all(), "part", buffer.get_sub_region(1024, 1024).size)
    own = np.arange(256, dtype=np.int32)
    used = cl.Buffer(context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=own)
    program.add(queue, (256,), None, used, np.int32(1))
    mapped, _ = cl.enqueue_map_buffer(queue, used, cl.map_flags.READ, 0, (256,), np.int32)
    print("own memory", (mapped == np.arange(256) + 1).all(), own[5])
    mapped.base.release(queue)
    square = np.arange(24 * 16, dtype=np.float32).reshape(16, 24)
    part = np.zeros((4, 6), np.float32)
    cl.enqueue_copy(queue, part, cl.Buffer(context, flags.COPY_HOST_PTR, hostbuf=square), buffer_origin=(8, 2), host_origin=(0, 0),
                    region=(24, 4), buffer_pitches=(96,), host_pitches=(24,))
    print("rectangle", (part == square[2:6, 2:8]).all())


def shared_memory():
    print("coarse-grained", device.svm_capabilities & cl.device_svm_capabilities.COARSE_GRAIN_BUFFER)
    x = cl.SVM(cl.csvm_empty(context, 1000, np.int32, alignment=64))
    cl.enqueue_svm_memfill(queue, x, np.int32(5))
    with x.map_rw(queue) as host:
        held = (host == 5).all()
        host[:] = np.arange(1000)
    program.add(queue, (1000,), None, x, np.int32(7))
    program.add(queue, (1000,), None, x.as_buffer(context), np.int32(1))
    with x.map_ro(queue) as host:
        print("shared", held, (host == np.arange(1000) + 8).all())
    got = np.empty(1000, np.int32)
    cl.enqueue_copy(queue, got, x)
    print("copied", (got == np.arange(1000) + 8).all())


def threads():
    wrong = []

    def work(i):
        mine = cl.CommandQueue(context)
        x = cla.to_device(mine, np.full(5000, i, np.int32))
        kernel = cl.Kernel(program, "add")
        for _ in range(30):
            kernel(mine, (5000,), None, x.data, np.int32(1))
        if not (x.get() == i + 30).all():
            wrong.append(i)

    all_threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    print("threads", wrong)


def binaries():
    again = cl.Program(context, [device], program.get_info(cl.program_info.BINARIES)).build()
    x = cla.zeros(queue, 100, np.int32)
    again.add(queue, (100,), None, x.data, np.int32(4))
    print("binary", (x.get() == 4).all())


for part in (arrays, images, events, errors, memory, shared_memory, threads, binaries):
    part()
