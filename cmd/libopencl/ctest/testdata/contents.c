/* contents.c: which contents the layer takes for held, for the Go test. Prints nothing when all
 * holds. */
#include "contents.h"
#include "entry.h"
#include "signature.h"

#include <stdio.h>
#include <string.h>

struct _cl_icd_dispatch entry_driver;

static cl_mem object(uintptr_t i) { return (cl_mem)(0x1000 + 16 * i); }
static cl_kernel kernel(uintptr_t i) { return (cl_kernel)(0x2000 + 16 * i); }

enum { SIZE = 4096, CONSTANT = 1 };
static char memory[SIZE];

static int failures;
static void check(int holds, const char *what) {
	if (!holds)
		failures += printf("%s\n", what) > 0;
}

/* A driver whose kernels only read their argument CONSTANT. */
static cl_int CL_API_CALL argument_info(cl_kernel k, cl_uint index, cl_kernel_arg_info name, size_t size, void *value, size_t *size_ret) {
	(void)k, (void)size_ret;
	if (name != CL_KERNEL_ARG_TYPE_QUALIFIER || size != sizeof(cl_kernel_arg_type_qualifier))
		return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
	*(cl_kernel_arg_type_qualifier *)value = index == CONSTANT ? CL_KERNEL_ARG_TYPE_CONST : CL_KERNEL_ARG_TYPE_NONE;
	return CL_SUCCESS;
}

/* Maps and unmaps a region; returns 1 when the map reads nothing. */
static int map(cl_mem m, cl_map_flags flags, int blocking, uint64_t region) {
	int held = contents_mapped(m, memory, flags, blocking, region);
	contents_unmapped(memory);
	return held;
}

static void objects(void) {
	check(!map(object(0), CL_MAP_READ, 1, SIZE), "an unknown object is held");
	contents_created(object(0), 0, SIZE, 1);
	check(map(object(0), CL_MAP_READ, 1, SIZE), "undefined contents are read");
	contents_written(object(0));
	check(!map(object(0), CL_MAP_READ, 1, SIZE / 2), "written contents are held");
	check(!map(object(0), CL_MAP_READ, 0, SIZE), "a map of half of the object makes it held");
	check(!map(object(0), CL_MAP_READ, 1, SIZE), "a map that does not block makes it held");
	check(map(object(0), CL_MAP_READ, 1, 1), "a map of the whole object does not make it held");
	contents_written(object(0));
	check(!map(object(0), CL_MAP_WRITE_INVALIDATE_REGION, 1, SIZE), "a map that asks for nothing counts as held");
	check(map(object(0), CL_MAP_READ, 1, SIZE), "an unmap that writes all does not make it held");
	check(!contents_mapped(object(0), memory, CL_MAP_WRITE_INVALIDATE_REGION, 1, SIZE), "a map that asks for nothing counts as held");
	contents_written(object(0));
	contents_unmapped(memory);
	check(map(object(0), CL_MAP_READ, 1, SIZE), "the last unmap does not make it held");
	contents_written(object(0));
	check(!map(object(0), CL_MAP_WRITE_INVALIDATE_REGION, 1, 1) && !map(object(0), CL_MAP_READ, 1, SIZE), "an unmap that writes a part makes it held");
	contents_created(object(0), 0, SIZE, 0);
	check(!map(object(0), CL_MAP_READ, 1, SIZE), "an object inherits the state of the one at its address");
}

static void parts(void) {
	contents_created(object(1), 0, SIZE, 1);
	contents_part(object(2), object(1), 0);
	check(map(object(2), CL_MAP_READ, 1, 16), "a part of held contents is read");
	contents_written(object(2));
	check(!map(object(1), CL_MAP_READ, 0, SIZE), "a command that writes a part leaves the whole held");
	check(!map(object(2), CL_MAP_READ, 1, 16) && !map(object(1), CL_MAP_READ, 0, SIZE), "a map of a part makes the whole held");
	contents_part(object(3), object(99), 0);
	check(!map(object(3), CL_MAP_READ, 1, 16), "a part of an unknown object is held");
}

static const char source[] = "kernel void k(global int *a, const global int *b, global int *c);";

static cl_int CL_API_CALL kernel_info(cl_kernel k, cl_kernel_info name, size_t size, void *value, size_t *size_ret) {
	(void)k;
	if (name == CL_KERNEL_PROGRAM)
		*(cl_program *)value = (cl_program)source;
	if (name == CL_KERNEL_FUNCTION_NAME && size)
		memcpy(value, "k", 2);
	if (size_ret)
		*size_ret = 2;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL program_info(cl_program p, cl_program_info name, size_t size, void *value, size_t *size_ret) {
	(void)name;
	if (size)
		memcpy(value, p, size);
	if (size_ret)
		*size_ret = sizeof source;
	return CL_SUCCESS;
}

static void signatures(void) {
	static const char text[] =
		"#define k(x) {\\\n { k(const int y)\n/* k(const */ // k(const\n"
		"void other(void) { k(1, const); }\n"
		"__kernel __attribute__((vec_type_hint(float4))) void k(__global float *restrict a, __global const float *b, constant float *c,\n"
		"  float * const d, read_only image2d_t e, __write_only image2d_t f, float (*g)(const int), local int *h) { }";
	static const char *reads = "01101000";
	for (unsigned i = 0; reads[i]; i++)
		check(signature_reads(text, "k", i) == reads[i] - '0', "a parameter is taken for another kind");
	check(signature_count(text, "k") == (int)strlen(reads) && signature_count(text, "m") == -1, "parameters are miscounted");
	check(signature_count("kernel void k() {}", "k") == 0 && signature_count("kernel void k(void) {}", "k") == 0 && signature_count("kernel void k(int a, ", "k") == -1, "parameters are miscounted");
	check(!signature_reads(text, "k", 99) && !signature_reads(text, "m", 0), "an unknown parameter is read only");
	check(!signature_reads("kernel void k(", "k", 0) && !signature_reads("/* k", "k", 0) && !signature_reads("", "", 0), "a source that is cut off has parameters");
}

static int held_after_launch(cl_uint index, cl_mem_flags flags) {
	contents_created(object(4), flags, SIZE, 1);
	map(object(4), CL_MAP_READ, 0, SIZE);
	contents_kernel(kernel(0));
	contents_argument(kernel(0), index, object(4));
	contents_argument(kernel(0), index + 1, object(98));
	contents_launched(kernel(0));
	return map(object(4), CL_MAP_READ, 0, SIZE);
}

static void kernels(void) {
	check(held_after_launch(CONSTANT, 0), "a constant argument is written");
	check(!held_after_launch(CONSTANT + 1, 0), "an argument is not written");
	check(held_after_launch(CONSTANT + 1, CL_MEM_READ_ONLY), "an object that kernels only read is written");
	entry_driver.clGetKernelArgInfo = NULL;
	entry_driver.clGetKernelInfo = kernel_info;
	entry_driver.clGetProgramInfo = program_info;
	check(held_after_launch(CONSTANT, 0) && !held_after_launch(CONSTANT + 1, 0), "the source does not tell what is written");
	entry_driver.clGetKernelInfo = NULL;
	check(!held_after_launch(CONSTANT, 0), "an argument of which nothing is known is not written");
	contents_argument(kernel(0), CONSTANT, NULL);
	contents_created(object(4), 0, SIZE, 1);
	contents_launched(kernel(0));
	check(map(object(4), CL_MAP_READ, 0, SIZE), "an argument that was replaced is written");
	contents_argument(kernel(0), CONSTANT, object(4));
	contents_kernel(kernel(0));
	contents_launched(kernel(0));
	contents_launched(kernel(9));
	contents_argument(kernel(8), 1, NULL);
	check(map(object(4), CL_MAP_READ, 0, SIZE), "a kernel inherits the arguments of the one at its address");
	contents_argument(kernel(0), 100000, object(4));
}

int main(void) {
	entry_driver.clGetKernelArgInfo = argument_info;
	signatures();
	objects();
	parts();
	kernels();
	return failures != 0;
}
