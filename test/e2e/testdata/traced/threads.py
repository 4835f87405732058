"""Two threads with a queue each: one streams data there and back, one launches and waits."""
import threading

import numpy as np
import pyopencl as cl

ITEMS, ROUNDS = 1 << 18, 20

context = cl.create_some_context(interactive=False)
program = cl.Program(context, "kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }").build()
results = {}


def stream():
    queue, kernel = cl.CommandQueue(context), cl.Kernel(program, "scale")
    here, there = np.ones(ITEMS, np.float32), cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * ITEMS)
    for _ in range(ROUNDS):
        cl.enqueue_copy(queue, there, here, is_blocking=False)
        kernel(queue, (ITEMS,), None, there, np.float32(1.5))
        cl.enqueue_copy(queue, here, there)
    results["stream"] = float(here[9])


def launch():
    queue, kernel = cl.CommandQueue(context), cl.Kernel(program, "scale")
    data = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.ones(1024, np.float32))
    for _ in range(5 * ROUNDS):
        kernel(queue, (1024,), None, data, np.float32(1.01))
        queue.finish()
    got = np.empty(1024, np.float32)
    cl.enqueue_copy(queue, got, data)
    results["launch"] = round(float(got[9]), 4)


threads = [threading.Thread(target=work) for work in (stream, launch)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results.items()))
