"""Many small kernels: chains of events on a queue that is out of order, and on one in order."""
import numpy as np
import pyopencl as cl

ITEMS, CHAINS, LINKS, ROUNDS = 4096, 4, 25, 4

context = cl.create_some_context(interactive=False)
source = """
kernel void advance(global float *x, float by) { x[get_global_id(0)] += by; }
kernel void gather(global float *to, global const float *from) { to[get_global_id(0)] += from[get_global_id(0)]; }
"""
program = cl.Program(context, source).build()
advance, gather = program.advance, program.gather
anyhow = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
inorder = cl.CommandQueue(context)
zeros = np.zeros(ITEMS, np.float32)
chains = [cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=zeros) for _ in range(CHAINS)]
total = cl.Buffer(context, cl.mem_flags.READ_WRITE, zeros.nbytes)
sums = []
for _ in range(ROUNDS):
    cl.enqueue_fill_buffer(inorder, total, np.float32(0), 0, zeros.nbytes).wait()
    ends = []
    for buffer in chains:
        last = None
        for link in range(LINKS):
            last = advance(anyhow, (ITEMS,), (64,), buffer, np.float32(link), wait_for=[last] if last else None)
        ends.append(last)
    anyhow.flush()
    for buffer in chains:
        gather(inorder, (ITEMS,), (64,), total, buffer, wait_for=ends)
    got = np.empty_like(zeros)
    cl.enqueue_copy(inorder, got, total)
    sums.append(int(got[1]))
print(sums)
