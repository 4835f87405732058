"""A program in parts: headers that are programs and files, parts that are linked, all kernels created at
once, and shared memory that is freed in a queue."""
import os
import tempfile

import numpy as np
import pyopencl as cl

ITEMS = 1024

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)

library = cl.Program(context, "#include <shared/scale.h>\nint scaled(int x) { return x * SCALE; }")
header = cl.Program(context, "int scaled(int x);")
kernels = cl.Program(context, """
#include "parts/scaled.h"
kernel void first(global int *x) { x[get_global_id(0)] = scaled(get_global_id(0)); }
kernel void second(global int *x, int by) { x[get_global_id(0)] += by; }
kernel void third(global int *x, global const int *y, int by) { x[get_global_id(0)] += y[0] * by; }
""")
with tempfile.TemporaryDirectory() as folder:
    os.mkdir(os.path.join(folder, "shared"))
    with open(os.path.join(folder, "shared", "scale.h"), "w") as file:
        file.write("#define SCALE 3\n" + "/* a comment of a large header */\n" * 200)
    library.compile(["-I" + folder])
kernels.compile(headers=[("parts/scaled.h", header)])
linked = cl.link_program(context, [kernels, library])

buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * ITEMS)
for kernel in sorted(linked.all_kernels(), key=lambda k: k.function_name):
    arguments = {"first": [buffer], "second": [buffer, np.int32(7)], "third": [buffer, buffer, np.int32(0)]}[kernel.function_name]
    kernel.set_args(*arguments)  # a call would tie a cycle, which is collected at any time
    cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), None)
got = np.empty(ITEMS, np.int32)
cl.enqueue_copy(queue, got, buffer)
print(int(got[0]), int(got[-1]))

memory = cl.SVMAllocation(context, 4 * ITEMS, 0, cl.svm_mem_flags.READ_WRITE)
cl.enqueue_svm_memfill(queue, memory, np.full((), 5, np.int32))
cl.enqueue_copy(queue, got, memory)
memory.enqueue_release(queue)
queue.finish()
print(int(got.sum()))
