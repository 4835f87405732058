"""A program that waits without calls that wait: it polls events, and has callbacks wake it."""
import threading
import time

import numpy as np
import pyopencl as cl

ITEMS, ROUNDS = 4096, 20

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, """
kernel void work(global float *x, int n) {
	float a = x[get_global_id(0)];
	for (int i = 0; i < n; i++) a = a * 0.999f + 0.5f;
	x[get_global_id(0)] = a;
}
""").build()
work = cl.Kernel(program, "work")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(ITEMS, np.float32))
work.set_args(buffer, np.int32(100))

# A gate holds the commands until the program watches them.
def launch():
    gate = cl.UserEvent(context)
    event = cl.enqueue_nd_range_kernel(queue, work, (ITEMS,), None, wait_for=[gate])
    queue.flush()
    return gate, event


for _ in range(ROUNDS):
    gate, event = launch()
    status = event.command_execution_status
    gate.set_status(cl.command_execution_status.COMPLETE)
    while status > cl.command_execution_status.COMPLETE:
        time.sleep(0.0002)
        status = event.command_execution_status
for _ in range(ROUNDS):
    gate, event = launch()
    done = threading.Event()
    event.set_callback(cl.command_execution_status.COMPLETE, lambda status: done.set())
    gate.set_status(cl.command_execution_status.COMPLETE)
    done.wait()
got = np.empty(ITEMS, np.float32)
cl.enqueue_copy(queue, got, buffer)
print(float(got[0]))
