/* Kernels for ffmpeg's program_opencl, openclsrc and xfade_opencl. */
const sampler_t here = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

kernel void swirl(write_only image2d_t out, uint index, read_only image2d_t in)
{
	int2 at = (int2)(get_global_id(0), get_global_id(1));
	int2 from = at + (int2)((at.y + (int)index) % 17 - 8, (at.x + (int)index) % 13 - 6);
	write_imagef(out, at, read_imagef(in, here, from));
}

kernel void weave(write_only image2d_t out, uint index, read_only image2d_t a, read_only image2d_t b)
{
	int2 at = (int2)(get_global_id(0), get_global_id(1));
	float4 value = (at.x + at.y + (int)index) % 2 ? read_imagef(a, here, at) : read_imagef(b, here, at);
	write_imagef(out, at, value);
}

kernel void plasma(write_only image2d_t out, uint index)
{
	int2 at = (int2)(get_global_id(0), get_global_id(1));
	int3 value = (int3)(at.x * 3 + (int)index * 5, at.y * 7, at.x * at.y + (int)index) % 256;
	write_imagef(out, at, (float4)(convert_float3(value) / 255.0f, 1.0f));
}
