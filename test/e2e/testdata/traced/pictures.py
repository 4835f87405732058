"""Images that are mapped, drawn into, filtered and mapped again, and a buffer that the host maps."""
import numpy as np
import pyopencl as cl

SIDE, ROUNDS = 512, 10

context = cl.create_some_context(interactive=False)
source = """
constant sampler_t at = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
kernel void smooth(read_only image2d_t from, write_only image2d_t to) {
    int2 c = (int2)(get_global_id(0), get_global_id(1));
    write_imagef(to, c, (read_imagef(from, at, c) + read_imagef(from, at, c + (int2)(1, 0))) / 2);
}
kernel void rows(read_only image2d_t from, global const float *weights, global float *sums) {
    float sum = 0;
    for (int x = 0; x < get_image_width(from); x++)
        sum += weights[x] * read_imagef(from, at, (int2)(x, get_global_id(0))).x;
    sums[get_global_id(0)] = sum;
}
"""
program = cl.Program(context, source).build()
smooth, rows = program.smooth, program.rows
queue = cl.CommandQueue(context)
pixel = cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT)
flags = cl.mem_flags
drawn, filtered = (cl.Image(context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, pixel, shape=(SIDE, SIDE)) for _ in range(2))
weights = cl.Buffer(context, flags.READ_ONLY | flags.ALLOC_HOST_PTR, 4 * SIDE)
sums = cl.Buffer(context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, 4 * SIDE)


def mapped_image(image, how):
    return cl.enqueue_map_image(queue, image, how, (0, 0), (SIDE, SIDE), (SIDE, SIDE), np.float32)[0]


def mapped_buffer(buffer, how):
    return cl.enqueue_map_buffer(queue, buffer, how, 0, (SIDE,), np.float32)[0]


def draw(image, value):
    pixels = mapped_image(image, cl.map_flags.WRITE)
    pixels[:] = value
    pixels.base.release(queue)


ones = mapped_buffer(weights, cl.map_flags.WRITE_INVALIDATE_REGION)
ones[:] = 1
ones.base.release(queue)
for round in range(ROUNDS):
    draw(drawn, round)
    smooth(queue, (SIDE, SIDE), None, drawn, filtered)
    rows(queue, (SIDE,), None, filtered, weights, sums)
    before = mapped_image(drawn, cl.map_flags.READ)
    after = mapped_image(filtered, cl.map_flags.READ)
    again = mapped_image(filtered, cl.map_flags.READ)
    line = mapped_buffer(sums, cl.map_flags.READ)
    print(round, before[3, 3], after[3, 3], again[5, 5], line[7])
    for memory in (before, after, again, line):
        memory.base.release(queue)
