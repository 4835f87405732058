"""Programs from binaries: one that was built, and one that the driver refuses; and builds that fail."""
import os
import tempfile

cache = tempfile.TemporaryDirectory()
os.environ["POCL_CACHE_DIR"] = cache.name  # PoCL's binaries have what earlier runs have cached

import numpy as np
import pyopencl as cl

ITEMS = 64

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
device = context.devices[0]


def fails(call):
    try:
        call()
    except cl.Error as error:
        return error.__class__.__name__
    return "no failure"


source = cl.Program(context, "kernel void fill(global int *x, int by) { x[get_global_id(0)] = by; }").build()
binary = source.get_info(cl.program_info.BINARIES)[0]
program = cl.Program(context, [device], [binary]).build()
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * ITEMS)
kernel = cl.Kernel(program, "fill")
kernel.set_args(buffer, np.int32(7))
cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), None)
got = np.empty(ITEMS, np.int32)
cl.enqueue_copy(queue, got, buffer)
print(int(got.sum()))

print(fails(lambda: cl.Program(context, [device], [bytes(4096)]).build()))
wrong = cl.Program(context, "kernel void wrong(global int *x) { undeclared(x); }" + " " * 4096)
print(fails(lambda: wrong.compile(["-DA=1"])))
