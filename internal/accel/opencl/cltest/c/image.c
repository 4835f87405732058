// Images: every type and many formats, created, read, written, filled, copied and mapped with
// pitches and origins, used by kernels through samplers, and queried.
#include "clt.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { most_bytes = 1 << 16 };

static unsigned char host[most_bytes], other[most_bytes], want[most_bytes];

// A type of image with the size that the cases use.
struct shape {
	const char *name;
	cl_mem_object_type type;
	size_t width, height, depth, layers;
};

static const struct shape shapes[] = {
	{"1d", CL_MEM_OBJECT_IMAGE1D, 37, 0, 0, 0},
	{"1d_array", CL_MEM_OBJECT_IMAGE1D_ARRAY, 13, 0, 0, 5},
	{"2d", CL_MEM_OBJECT_IMAGE2D, 17, 9, 0, 0},
	{"2d_array", CL_MEM_OBJECT_IMAGE2D_ARRAY, 11, 7, 0, 4},
	{"3d", CL_MEM_OBJECT_IMAGE3D, 10, 6, 5, 0},
};

static const struct {
	const char *name;
	cl_image_format format;
	size_t bytes;
} formats[] = {
	{"rgba8", {CL_RGBA, CL_UNORM_INT8}, 4},
	{"bgra8", {CL_BGRA, CL_UNORM_INT8}, 4},
	{"rgba8ui", {CL_RGBA, CL_UNSIGNED_INT8}, 4},
	{"rgba16i", {CL_RGBA, CL_SIGNED_INT16}, 8},
	{"rgba32f", {CL_RGBA, CL_FLOAT}, 16},
	{"rgba16f", {CL_RGBA, CL_HALF_FLOAT}, 8},
	{"r8", {CL_R, CL_UNORM_INT8}, 1},
	{"r32ui", {CL_R, CL_UNSIGNED_INT32}, 4},
	{"rg16", {CL_RG, CL_UNORM_INT16}, 4},
	{"rgb565", {CL_RGB, CL_UNORM_SHORT_565}, 2},
	{"intensity8", {CL_INTENSITY, CL_UNORM_INT8}, 1},
	{"depth32f", {CL_DEPTH, CL_FLOAT}, 4},
};

static cl_image_desc describe(const struct shape *s) {
	cl_image_desc d = {.image_type = s->type, .image_width = s->width, .image_height = s->height, .image_depth = s->depth,
		.image_array_size = s->layers};
	return d;
}

// The extent of an image as region arguments have it.
static void extent(const struct shape *s, size_t *region) {
	region[0] = s->width;
	region[1] = s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? s->layers : s->height ? s->height : 1;
	region[2] = s->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? s->layers : s->depth ? s->depth : 1;
}

static bool supported(cl_mem_object_type type, const cl_image_format *format) {
	cl_image_format all[512];
	cl_uint count = 0;
	MUST(clGetSupportedImageFormats(clt_context(), CL_MEM_READ_WRITE, type, COUNT(all), all, &count));
	for (cl_uint i = 0; i < count && i < COUNT(all); i++)
		if (memcmp(&all[i], format, sizeof *format) == 0)
			return true;
	return false;
}

static cl_mem new_image(const struct shape *s, const cl_image_format *format, cl_mem_flags flags, void *pointer) {
	cl_image_desc d = describe(s);
	cl_int code;
	cl_mem image = clCreateImage(clt_context(), flags, format, &d, pointer, &code);
	MUST(code);
	return image;
}

static void read_image(cl_mem image, const size_t *origin, const size_t *region, size_t row, size_t slice, void *to) {
	MUST(clEnqueueReadImage(clt_queue(), image, CL_TRUE, origin, region, row, slice, to, 0, NULL, NULL));
}

static const size_t zero[3];

// take_region copies lines of texels between packed memory of the whole image and packed memory of
// a region.
static void take_region(unsigned char *to, const unsigned char *whole, const size_t *size, const size_t *origin, const size_t *region,
	size_t bytes, bool put) {
	for (size_t z = 0; z < region[2]; z++)
		for (size_t y = 0; y < region[1]; y++) {
			size_t at = (((z + origin[2]) * size[1] + y + origin[1]) * size[0] + origin[0]) * bytes;
			size_t packed = (z * region[1] + y) * region[0] * bytes;
			if (put)
				memcpy((unsigned char *)whole + at, to + packed, region[0] * bytes);
			else
				memcpy(to + packed, whole + at, region[0] * bytes);
		}
}

// --- transfers ----------------------------------------------------------------------------------

// inner is a region away from the borders where there is room for one.
static void inner(const size_t *size, size_t *origin, size_t *region) {
	for (int d = 0; d < 3; d++) {
		origin[d] = size[d] > 2 ? 1 : 0;
		region[d] = size[d] > 2 ? size[d] - 2 : size[d];
	}
}

static void transfer_one(const struct shape *s, size_t f) {
	size_t size[3], origin[3], region[3], bytes = formats[f].bytes;
	extent(s, size);
	inner(size, origin, region);
	size_t all = size[0] * size[1] * size[2] * bytes, part = region[0] * region[1] * region[2] * bytes;
	cl_mem image = new_image(s, &formats[f].format, CL_MEM_READ_WRITE, NULL);
	clt_fill(want, all, (uint32_t)f);
	MUST(clEnqueueWriteImage(clt_queue(), image, CL_TRUE, zero, size, 0, 0, want, 0, NULL, NULL));
	read_image(image, zero, size, 0, 0, other);
	CHECK(memcmp(other, want, all) == 0);
	read_image(image, origin, region, 0, 0, other);
	take_region(host, want, size, origin, region, bytes, false);
	CHECK(memcmp(other, host, part) == 0);
	clt_fill(host, part, 100 + (uint32_t)f);
	MUST(clEnqueueWriteImage(clt_queue(), image, CL_FALSE, origin, region, 0, 0, host, 0, NULL, NULL));
	take_region(host, want, size, origin, region, bytes, true);
	read_image(image, zero, size, 0, 0, other);
	CHECK(memcmp(other, want, all) == 0);
	clt_say(s->name, "%s %016llx", formats[f].name, (unsigned long long)clt_hash(other, all));
	MUST(clReleaseMemObject(image));
}

static void transfer(void) {
	for (size_t i = 0; i < COUNT(shapes); i++)
		for (size_t f = 0; f < COUNT(formats); f++) {
			if (supported(shapes[i].type, &formats[f].format))
				transfer_one(&shapes[i], f);
			else
				clt_say(shapes[i].name, "%s unsupported", formats[f].name);
		}
}

// Rows and slices of the program's memory lie further apart than they are long; nothing between
// them is touched.
static void pitches_one(const struct shape *s) {
	size_t size[3], bytes = 4;
	extent(s, size);
	size_t row = size[0] * bytes + 12, slice = row * size[1] + row * 2;
	bool has_rows = s->type != CL_MEM_OBJECT_IMAGE1D, has_slices = size[2] > 1;
	if (s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
		slice = row;
	cl_mem image = new_image(s, &formats[0].format, CL_MEM_READ_WRITE, NULL);
	clt_fill(host, sizeof host, 3);
	MUST(clEnqueueWriteImage(clt_queue(), image, CL_TRUE, zero, size, has_rows ? row : 0,
		has_slices || s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? slice : 0, host, 0, NULL, NULL));
	read_image(image, zero, size, 0, 0, other);
	clt_say(s->name, "packed %016llx", (unsigned long long)clt_hash(other, size[0] * size[1] * size[2] * bytes));
	memset(want, 0xab, sizeof want);
	read_image(image, zero, size, has_rows ? row : 0, has_slices || s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? slice : 0, want);
	clt_say(s->name, "spread %016llx", (unsigned long long)clt_hash(want, sizeof want));
	MUST(clReleaseMemObject(image));
}

static void pitches(void) {
	for (size_t i = 0; i < COUNT(shapes); i++)
		pitches_one(&shapes[i]);
}

// --- creation -----------------------------------------------------------------------------------

static void host_pointer_one(const struct shape *s, cl_mem_flags flags, const char *name, size_t gap) {
	size_t size[3];
	extent(s, size);
	cl_image_desc d = describe(s);
	cl_int code;
	if (gap && s->type != CL_MEM_OBJECT_IMAGE1D) {
		d.image_row_pitch = size[0] * 4 + gap;
		if (s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
			d.image_slice_pitch = d.image_row_pitch;
		if (size[2] > 1)
			d.image_slice_pitch = d.image_row_pitch * (size[1] + 1);
	}
	clt_fill(host, sizeof host, 77);
	cl_mem image = clCreateImage(clt_context(), flags, &formats[0].format, &d, host, &code);
	clt_code(code, "%s %s gap %zu", s->name, name, gap);
	if (!image)
		return;
	read_image(image, zero, size, 0, 0, other);
	clt_say(s->name, "%016llx", (unsigned long long)clt_hash(other, size[0] * size[1] * size[2] * 4));
	MUST(clReleaseMemObject(image));
}

static void host_pointers(void) {
	for (size_t i = 0; i < COUNT(shapes); i++)
		for (size_t gap = 0; gap <= 16; gap += 16) {
			host_pointer_one(&shapes[i], CL_MEM_COPY_HOST_PTR, "copy", gap);
			host_pointer_one(&shapes[i], CL_MEM_USE_HOST_PTR, "use", gap);
			host_pointer_one(&shapes[i], CL_MEM_COPY_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, "alloc|copy", gap);
		}
}

static void old_creators(void) {
	cl_int code;
	size_t region[3] = {8, 4, 1}, deep[3] = {4, 3, 2};
	clt_fill(host, 4096, 5);
	cl_mem flat = clCreateImage2D(clt_context(), CL_MEM_COPY_HOST_PTR, &formats[0].format, 8, 4, 48, host, &code);
	clt_code(code, "2d");
	MUST(code);
	read_image(flat, zero, region, 0, 0, other);
	clt_say("2d", "%016llx", (unsigned long long)clt_hash(other, 128));
	cl_mem volume = clCreateImage3D(clt_context(), CL_MEM_COPY_HOST_PTR, &formats[0].format, 4, 3, 2, 20, 80, host, &code);
	clt_code(code, "3d");
	MUST(code);
	read_image(volume, zero, deep, 0, 0, other);
	clt_say("3d", "%016llx", (unsigned long long)clt_hash(other, 96));
	MUST(clReleaseMemObject(flat));
	MUST(clReleaseMemObject(volume));
}

static void refuse(const char *what, cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *d, void *pointer) {
	cl_int code = 1;
	cl_mem image = clCreateImage(clt_context(), flags, format, d, pointer, &code);
	clt_code(code, "%s", what);
	CHECK((image != NULL) == (code == CL_SUCCESS));
	if (image)
		MUST(clReleaseMemObject(image));
}

static void refused(void) {
	const cl_image_format *good = &formats[0].format;
	cl_image_format wrong = {0x9999, CL_UNORM_INT8}, odd = {CL_RGBA, 0x9999};
	cl_image_desc d = describe(&shapes[2]), e = d;
	refuse("no format", 0, NULL, &d, NULL);
	refuse("no description", 0, good, NULL, NULL);
	refuse("unknown order", 0, &wrong, &d, NULL);
	refuse("unknown type", 0, &odd, &d, NULL);
	refuse("pointer without flag", 0, good, &d, host);
	refuse("flag without pointer", CL_MEM_COPY_HOST_PTR, good, &d, NULL);
	refuse("unknown flag", (cl_mem_flags)1 << 40, good, &d, NULL);
	e.image_width = 0;
	refuse("width 0", 0, good, &e, NULL);
	e = d;
	e.image_height = 0;
	refuse("height 0", 0, good, &e, NULL);
	e = d;
	e.image_width = 1 << 20;
	refuse("too wide", 0, good, &e, NULL);
	e = d;
	e.image_row_pitch = 100;
	refuse("pitch without pointer", 0, good, &e, NULL);
	e.image_row_pitch = 20;
	refuse("pitch too small", CL_MEM_COPY_HOST_PTR, good, &e, host);
	e.image_row_pitch = 70;
	refuse("pitch no multiple", CL_MEM_COPY_HOST_PTR, good, &e, host);
	e = d;
	e.image_type = CL_MEM_OBJECT_BUFFER;
	refuse("buffer", 0, good, &e, NULL);
}

static void transfer_refused(void) {
	cl_mem image = new_image(&shapes[2], &formats[0].format, 0, NULL), buffer = clt_buffer(0, 4096, NULL);
	size_t all[3] = {17, 9, 1}, wide[3] = {18, 9, 1}, empty[3] = {17, 0, 1}, deep[3] = {17, 9, 2}, off[3] = {1, 0, 0};
	cl_command_queue q = clt_queue();
	clt_code(clEnqueueReadImage(q, image, CL_TRUE, zero, wide, 0, 0, other, 0, NULL, NULL), "too wide");
	clt_code(clEnqueueReadImage(q, image, CL_TRUE, off, all, 0, 0, other, 0, NULL, NULL), "outside");
	clt_code(clEnqueueReadImage(q, image, CL_TRUE, zero, empty, 0, 0, other, 0, NULL, NULL), "region with 0");
	clt_code(clEnqueueReadImage(q, image, CL_TRUE, zero, deep, 0, 0, other, 0, NULL, NULL), "too deep");
	clt_code(clEnqueueReadImage(q, image, CL_TRUE, zero, all, 10, 0, other, 0, NULL, NULL), "row pitch too small");
	clt_code(clEnqueueReadImage(q, image, CL_TRUE, zero, all, 0, 0, NULL, 0, NULL, NULL), "no pointer");
	clt_code(clEnqueueReadImage(q, buffer, CL_TRUE, zero, all, 0, 0, other, 0, NULL, NULL), "of a buffer");
	clt_code(clEnqueueReadBuffer(q, image, CL_TRUE, 0, 16, other, 0, NULL, NULL), "read as buffer");
	clt_code(clEnqueueWriteImage(q, image, CL_TRUE, off, all, 0, 0, other, 0, NULL, NULL), "write outside");
	clt_code(clEnqueueCopyImage(q, image, image, zero, off, (size_t[]){4, 4, 1}, 0, NULL, NULL), "copy overlapping");
	cl_mem elsewhere = new_image(&shapes[2], &formats[2].format, 0, NULL);
	clt_code(clEnqueueCopyImage(q, image, elsewhere, zero, zero, all, 0, NULL, NULL), "copy to another format");
	MUST(clFinish(q));
	MUST(clReleaseMemObject(image));
	MUST(clReleaseMemObject(elsewhere));
	MUST(clReleaseMemObject(buffer));
}

// --- fills and copies ---------------------------------------------------------------------------

static void fill_one(const struct shape *s, size_t f) {
	size_t size[3], origin[3], region[3], bytes = formats[f].bytes;
	extent(s, size);
	inner(size, origin, region);
	size_t all = size[0] * size[1] * size[2] * bytes;
	cl_mem image = new_image(s, &formats[f].format, CL_MEM_READ_WRITE, NULL);
	memset(want, 0, all);
	MUST(clEnqueueWriteImage(clt_queue(), image, CL_TRUE, zero, size, 0, 0, want, 0, NULL, NULL));
	cl_float colour_f[4] = {0.25f, 0.5f, 0.75f, 1.0f};
	cl_uint colour_u[4] = {1, 2, 3, 4};
	cl_channel_type type = formats[f].format.image_channel_data_type;
	bool whole = type == CL_UNSIGNED_INT8 || type == CL_SIGNED_INT16 || type == CL_UNSIGNED_INT32;
	cl_int code = clEnqueueFillImage(clt_queue(), image, whole ? (void *)colour_u : (void *)colour_f, origin, region, 0, NULL, NULL);
	read_image(image, zero, size, 0, 0, other);
	clt_say(s->name, "%s %s %016llx", formats[f].name, clt_name(code), (unsigned long long)clt_hash(other, all));
	MUST(clReleaseMemObject(image));
}

static void fill(void) {
	for (size_t i = 0; i < COUNT(shapes); i++)
		for (size_t f = 0; f < COUNT(formats); f++)
			if (supported(shapes[i].type, &formats[f].format))
				fill_one(&shapes[i], f);
}

static void copy_one(const struct shape *s) {
	size_t size[3], origin[3], region[3], bytes = 4;
	extent(s, size);
	inner(size, origin, region);
	size_t all = size[0] * size[1] * size[2] * bytes, part = region[0] * region[1] * region[2] * bytes;
	cl_mem a = new_image(s, &formats[0].format, CL_MEM_READ_WRITE, NULL), b = new_image(s, &formats[0].format, CL_MEM_READ_WRITE, NULL);
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE, most_bytes, NULL);
	clt_fill(host, all, 9);
	memset(want, 0, all);
	MUST(clEnqueueWriteImage(clt_queue(), a, CL_TRUE, zero, size, 0, 0, host, 0, NULL, NULL));
	MUST(clEnqueueWriteImage(clt_queue(), b, CL_TRUE, zero, size, 0, 0, want, 0, NULL, NULL));
	MUST(clEnqueueCopyImage(clt_queue(), a, b, origin, zero, region, 0, NULL, NULL));
	take_region(other, host, size, origin, region, bytes, false);
	take_region(other, want, size, zero, region, bytes, true);
	read_image(b, zero, size, 0, 0, other);
	CHECK(memcmp(other, want, all) == 0);
	MUST(clEnqueueCopyImageToBuffer(clt_queue(), a, buffer, origin, region, 36, 0, NULL, NULL));
	MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 36, part, other, 0, NULL, NULL));
	take_region(want, host, size, origin, region, bytes, false);
	CHECK(memcmp(other, want, part) == 0);
	MUST(clEnqueueCopyBufferToImage(clt_queue(), buffer, b, 36, origin, region, 0, NULL, NULL));
	read_image(b, origin, region, 0, 0, other);
	CHECK(memcmp(other, want, part) == 0);
	clt_code(clEnqueueCopyImageToBuffer(clt_queue(), a, buffer, zero, size, most_bytes - 4, 0, NULL, NULL), "%s too long", s->name);
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(b));
	MUST(clReleaseMemObject(buffer));
}

static void copy(void) {
	for (size_t i = 0; i < COUNT(shapes); i++)
		copy_one(&shapes[i]);
}

// --- maps ---------------------------------------------------------------------------------------

static unsigned char *map(cl_mem image, cl_map_flags how, const size_t *origin, const size_t *region, size_t *row, size_t *slice) {
	cl_int code;
	unsigned char *p = clEnqueueMapImage(clt_queue(), image, CL_TRUE, how, origin, region, row, slice, 0, NULL, NULL, &code);
	MUST(code);
	return p;
}

// lines_equal calls memcmp for every line of a mapped region.
static bool lines_equal(const unsigned char *p, size_t row, size_t slice, const unsigned char *packed, const size_t *region, size_t bytes) {
	for (size_t z = 0; z < region[2]; z++)
		for (size_t y = 0; y < region[1]; y++)
			if (memcmp(p + z * slice + y * row, packed + (z * region[1] + y) * region[0] * bytes, region[0] * bytes) != 0)
				return false;
	return true;
}

static void set_lines(unsigned char *p, size_t row, size_t slice, const unsigned char *packed, const size_t *region, size_t bytes) {
	for (size_t z = 0; z < region[2]; z++)
		for (size_t y = 0; y < region[1]; y++)
			memcpy(p + z * slice + y * row, packed + (z * region[1] + y) * region[0] * bytes, region[0] * bytes);
}

static void map_one(const struct shape *s, cl_mem_flags flags) {
	size_t size[3], origin[3], region[3], row = 0, slice = 0, bytes = 4;
	extent(s, size);
	inner(size, origin, region);
	size_t all = size[0] * size[1] * size[2] * bytes, part = region[0] * region[1] * region[2] * bytes;
	static unsigned char own[most_bytes];
	cl_mem image = new_image(s, &formats[0].format, CL_MEM_READ_WRITE | flags, flags & CL_MEM_USE_HOST_PTR ? own : NULL);
	clt_fill(want, all, 21);
	MUST(clEnqueueWriteImage(clt_queue(), image, CL_TRUE, zero, size, 0, 0, want, 0, NULL, NULL));
	static const cl_map_flags hows[] = {CL_MAP_READ, CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
	for (uint32_t i = 0; i < COUNT(hows); i++) {
		// For a 1D array the lines are slices: their distance is the slice pitch.
		unsigned char *p = map(image, hows[i], origin, region, &row, &slice);
		size_t line = s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? slice : row;
		CHECK(line >= (s->type == CL_MEM_OBJECT_IMAGE1D ? 0 : region[0] * bytes));
		take_region(host, want, size, origin, region, bytes, false);
		CHECK(!(hows[i] & CL_MAP_READ) || lines_equal(p, line, slice, host, region, bytes));
		CHECK(!(flags & CL_MEM_USE_HOST_PTR) || (p >= own && p < own + most_bytes));
		if (hows[i] != CL_MAP_READ) {
			clt_fill(host, part, 30 + i);
			set_lines(p, line, slice, host, region, bytes);
			take_region(host, want, size, origin, region, bytes, true);
		}
		MUST(clEnqueueUnmapMemObject(clt_queue(), image, p, 0, NULL, NULL));
		read_image(image, zero, size, 0, 0, other);
		CHECK(memcmp(other, want, all) == 0);
	}
	clt_say(s->name, "%016llx", (unsigned long long)clt_hash(want, all));
	MUST(clReleaseMemObject(image));
}

static void maps(void) {
	for (size_t i = 0; i < COUNT(shapes); i++) {
		map_one(&shapes[i], 0);
		map_one(&shapes[i], CL_MEM_ALLOC_HOST_PTR);
		map_one(&shapes[i], CL_MEM_USE_HOST_PTR);
	}
}

static void map_refused(void) {
	cl_mem image = new_image(&shapes[2], &formats[0].format, 0, NULL);
	size_t all[3] = {17, 9, 1}, off[3] = {1, 0, 0}, row = 0, slice = 0;
	cl_int code;
	CHECK(clEnqueueMapImage(clt_queue(), image, CL_TRUE, CL_MAP_READ, off, all, &row, &slice, 0, NULL, NULL, &code) == NULL);
	clt_code(code, "outside");
	CHECK(clEnqueueMapImage(clt_queue(), image, CL_TRUE, CL_MAP_READ, zero, all, NULL, &slice, 0, NULL, NULL, &code) == NULL);
	clt_code(code, "no row pitch");
	void *p = clEnqueueMapImage(clt_queue(), image, CL_TRUE, CL_MAP_READ, zero, all, &row, NULL, 0, NULL, NULL, &code);
	clt_code(code, "no slice pitch of 2d");
	if (p)
		MUST(clEnqueueUnmapMemObject(clt_queue(), image, p, 0, NULL, NULL));
	MUST(clFinish(clt_queue()));
	MUST(clReleaseMemObject(image));
}

// --- from buffers -------------------------------------------------------------------------------

static void from_buffer_one(const char *name, cl_image_desc d, size_t lines) {
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE, 8192, NULL);
	cl_int code;
	clt_fill(host, 8192, 55);
	MUST(clEnqueueWriteBuffer(clt_queue(), buffer, CL_TRUE, 0, 8192, host, 0, NULL, NULL));
	d.mem_object = buffer;
	cl_mem image = clCreateImage(clt_context(), CL_MEM_READ_WRITE, &formats[0].format, &d, NULL, &code);
	clt_code(code, "%s", name);
	if (image) {
		size_t region[3] = {32, lines, 1};
		read_image(image, zero, region, 0, 0, other);
		clt_say(name, "%016llx", (unsigned long long)clt_hash(other, 128 * lines));
		cl_mem parent = NULL;
		MUST(clGetMemObjectInfo(image, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
		CHECK(parent == buffer);
		MUST(clEnqueueWriteImage(clt_queue(), image, CL_TRUE, zero, (size_t[]){4, 1, 1}, 0, 0, host + 5000, 0, NULL, NULL));
		MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 0, 8192, other, 0, NULL, NULL));
		clt_say(name, "%016llx", (unsigned long long)clt_hash(other, 8192));
		MUST(clEnqueueWriteBuffer(clt_queue(), buffer, CL_TRUE, 0, 16, host + 100, 0, NULL, NULL));
		read_image(image, zero, region, 0, 0, other);
		CHECK(memcmp(other, host + 100, 16) == 0);
		MUST(clReleaseMemObject(image));
	}
	MUST(clReleaseMemObject(buffer));
}

static void from_buffer(void) {
	cl_image_desc line = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 32};
	cl_image_desc flat = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 32, .image_height = 8, .image_row_pitch = 256};
	cl_image_desc large = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 1 << 16};
	from_buffer_one("1d_buffer", line, 1);
	from_buffer_one("2d of a buffer", flat, 8);
	from_buffer_one("1d_buffer larger than its buffer", large, 1);
}

// --- kernels ------------------------------------------------------------------------------------

static const char *const kernel_source =
	"constant sampler_t exact = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"
	"kernel void turn(read_only image2d_t from, write_only image2d_t to) {\n"
	"  int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
	"  write_imagef(to, at, 1.0f - read_imagef(from, exact, (int2)(get_image_width(from) - 1 - at.x, at.y))); }\n"
	"kernel void sample(read_only image2d_t from, sampler_t how, global float4 *out) {\n"
	"  int x = get_global_id(0), y = get_global_id(1);\n"
	"  out[y * get_global_size(0) + x] = read_imagef(from, how, (float2)((x - 4) * 0.125f, (y - 4) * 0.125f)); }\n"
	"kernel void sizes(read_only image2d_t a, read_only image3d_t b, read_only image2d_array_t c, read_only image1d_t d,\n"
	"  read_only image1d_array_t e, global int *out) {\n"
	"  out[0] = get_image_width(a); out[1] = get_image_height(a); out[2] = get_image_width(b); out[3] = get_image_depth(b);\n"
	"  out[4] = get_image_width(c); out[5] = get_image_array_size(c); out[6] = get_image_width(d); out[7] = get_image_array_size(e);\n"
	"  out[8] = get_image_channel_order(a); out[9] = get_image_channel_data_type(a); }\n"
	"kernel void whole(read_only image3d_t from, global uint4 *out) {\n"
	"  int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);\n"
	"  out[(at.z * get_global_size(1) + at.y) * get_global_size(0) + at.x] = read_imageui(from, exact, at); }\n";

static cl_program image_program(void) {
	static cl_program program;
	if (!program)
		program = clt_build(kernel_source, NULL);
	return program;
}

static void kernel_turn(void) {
	cl_kernel kernel = clt_kernel(image_program(), "turn");
	cl_mem from = new_image(&shapes[2], &formats[0].format, CL_MEM_READ_ONLY, NULL);
	cl_mem to = new_image(&shapes[2], &formats[0].format, CL_MEM_WRITE_ONLY, NULL);
	size_t size[3];
	extent(&shapes[2], size);
	clt_fill(host, size[0] * size[1] * 4, 12);
	MUST(clEnqueueWriteImage(clt_queue(), from, CL_FALSE, zero, size, 0, 0, host, 0, NULL, NULL));
	MUST(clSetKernelArg(kernel, 0, sizeof from, &from));
	MUST(clSetKernelArg(kernel, 1, sizeof to, &to));
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 2, NULL, size, NULL, 0, NULL, NULL));
	read_image(to, zero, size, 0, 0, other);
	for (size_t y = 0; y < size[1]; y++)
		for (size_t x = 0; x < size[0]; x++)
			for (size_t c = 0; c < 4; c++)
				CHECK(other[(y * size[0] + x) * 4 + c] == 255 - host[(y * size[0] + size[0] - 1 - x) * 4 + c]);
	MUST(clReleaseMemObject(from));
	MUST(clReleaseMemObject(to));
	MUST(clReleaseKernel(kernel));
}

static void sample_one(cl_kernel kernel, cl_mem out, cl_bool normalized, cl_addressing_mode address, cl_filter_mode filter) {
	cl_int code;
	cl_sampler sampler = clCreateSampler(clt_context(), normalized, address, filter, &code);
	clt_code(code, "sampler %u %#x %#x", normalized, address, filter);
	if (!sampler)
		return;
	size_t items[2] = {16, 16};
	MUST(clSetKernelArg(kernel, 1, sizeof sampler, &sampler));
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 2, NULL, items, NULL, 0, NULL, NULL));
	MUST(clEnqueueReadBuffer(clt_queue(), out, CL_TRUE, 0, 4096, other, 0, NULL, NULL));
	MUST(clReleaseSampler(sampler)); // kernels hold no references to their arguments
	clt_say("samples", "%016llx", (unsigned long long)clt_hash(other, 4096));
}

static void kernel_samplers(void) {
	static const cl_addressing_mode modes[] = {CL_ADDRESS_NONE, CL_ADDRESS_CLAMP_TO_EDGE, CL_ADDRESS_CLAMP, CL_ADDRESS_REPEAT,
		CL_ADDRESS_MIRRORED_REPEAT};
	cl_kernel kernel = clt_kernel(image_program(), "sample");
	struct shape square = {"square", CL_MEM_OBJECT_IMAGE2D, 4, 4, 0, 0};
	clt_fill(host, 64, 3);
	cl_mem image = new_image(&square, &formats[0].format, CL_MEM_COPY_HOST_PTR, host), out = clt_buffer(0, 4096, NULL);
	MUST(clSetKernelArg(kernel, 0, sizeof image, &image));
	MUST(clSetKernelArg(kernel, 2, sizeof out, &out));
	for (size_t m = 1; m < COUNT(modes); m++) // reads outside are undefined without an addressing mode
		for (cl_bool normalized = 0; normalized < 2; normalized++)
			if (normalized || m < 3)
				sample_one(kernel, out, normalized, modes[m], CL_FILTER_NEAREST);
	MUST(clReleaseMemObject(image));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
}

static void kernel_sizes(void) {
	cl_kernel kernel = clt_kernel(image_program(), "sizes");
	static const size_t order[] = {2, 4, 3, 0, 1};
	cl_mem images[5], out = clt_buffer(0, 64, NULL);
	cl_int got[10];
	for (cl_uint i = 0; i < 5; i++) {
		images[i] = new_image(&shapes[order[i]], &formats[0].format, CL_MEM_READ_ONLY, NULL);
		MUST(clSetKernelArg(kernel, i, sizeof images[i], &images[i]));
	}
	MUST(clSetKernelArg(kernel, 5, sizeof out, &out));
	MUST(clEnqueueTask(clt_queue(), kernel, 0, NULL, NULL));
	MUST(clEnqueueReadBuffer(clt_queue(), out, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
	for (int i = 0; i < 10; i++)
		clt_say("size", "%d %d", i, got[i]);
	for (int i = 0; i < 5; i++)
		MUST(clReleaseMemObject(images[i]));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
}

static void kernel_volume(void) {
	cl_kernel kernel = clt_kernel(image_program(), "whole");
	size_t size[3];
	extent(&shapes[4], size);
	size_t texels = size[0] * size[1] * size[2];
	clt_fill(host, texels * 4, 61);
	cl_mem image = new_image(&shapes[4], &formats[2].format, CL_MEM_COPY_HOST_PTR, host), out = clt_buffer(0, most_bytes, NULL);
	MUST(clSetKernelArg(kernel, 0, sizeof image, &image));
	MUST(clSetKernelArg(kernel, 1, sizeof out, &out));
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 3, NULL, size, NULL, 0, NULL, NULL));
	MUST(clEnqueueReadBuffer(clt_queue(), out, CL_TRUE, 0, texels * 16, other, 0, NULL, NULL));
	for (size_t i = 0; i < texels * 4; i++) {
		cl_uint value;
		memcpy(&value, other + i * 4, 4);
		CHECK(value == host[i]);
	}
	MUST(clReleaseMemObject(image));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
}

// --- queries ------------------------------------------------------------------------------------

static size_t image_number(cl_mem image, cl_image_info name) {
	size_t value = 0;
	MUST(clGetImageInfo(image, name, sizeof value, &value, NULL));
	return value;
}

static void info(void) {
	for (size_t i = 0; i < COUNT(shapes); i++) {
		cl_mem image = new_image(&shapes[i], &formats[0].format, CL_MEM_READ_WRITE, NULL);
		cl_image_format format;
		MUST(clGetImageInfo(image, CL_IMAGE_FORMAT, sizeof format, &format, NULL));
		CHECK(memcmp(&format, &formats[0].format, sizeof format) == 0);
		clt_say(shapes[i].name, "element=%zu row=%zu slice=%zu", image_number(image, CL_IMAGE_ELEMENT_SIZE),
			image_number(image, CL_IMAGE_ROW_PITCH), image_number(image, CL_IMAGE_SLICE_PITCH));
		clt_say(shapes[i].name, "width=%zu height=%zu depth=%zu layers=%zu buffer=%zu mips=%zu samples=%zu",
			image_number(image, CL_IMAGE_WIDTH), image_number(image, CL_IMAGE_HEIGHT), image_number(image, CL_IMAGE_DEPTH),
			image_number(image, CL_IMAGE_ARRAY_SIZE), image_number(image, CL_IMAGE_BUFFER),
			image_number(image, CL_IMAGE_NUM_MIP_LEVELS), image_number(image, CL_IMAGE_NUM_SAMPLES));
		size_t bytes = 0;
		cl_mem_object_type type = 0;
		MUST(clGetMemObjectInfo(image, CL_MEM_TYPE, sizeof type, &type, NULL));
		MUST(clGetMemObjectInfo(image, CL_MEM_SIZE, sizeof bytes, &bytes, NULL));
		clt_say(shapes[i].name, "type=%#x size=%zu", type, bytes);
		MUST(clReleaseMemObject(image));
	}
	cl_mem image = new_image(&shapes[2], &formats[0].format, CL_MEM_READ_WRITE, NULL);
	size_t value;
	clt_code(clGetImageInfo(image, 0x9999, 8, &value, NULL), "unknown name");
	clt_code(clGetImageInfo(image, CL_IMAGE_WIDTH, 4, &value, NULL), "too short");
	clt_code(clGetImageInfo(NULL, CL_IMAGE_WIDTH, 8, &value, NULL), "no image");
	MUST(clReleaseMemObject(image));
}

static void formats_listed(void) {
	static const cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_MEM_OBJECT_IMAGE1D_ARRAY,
		CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D, CL_MEM_OBJECT_BUFFER, 0x9999};
	static const cl_mem_flags flags[] = {CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE, CL_MEM_KERNEL_READ_AND_WRITE, 0};
	for (size_t t = 0; t < COUNT(types); t++)
		for (size_t f = 0; f < COUNT(flags); f++) {
			cl_image_format all[512] = {{0, 0}};
			cl_uint count = 77, again = 0;
			cl_int code = clGetSupportedImageFormats(clt_context(), flags[f], types[t], 0, NULL, &count);
			if (code == CL_SUCCESS)
				MUST(clGetSupportedImageFormats(clt_context(), flags[f], types[t], COUNT(all), all, &again));
			clt_say("formats", "%#x %#llx %s %u %016llx", types[t], (unsigned long long)flags[f], clt_name(code), count,
				(unsigned long long)clt_hash(all, sizeof all));
		}
	cl_uint count;
	clt_code(clGetSupportedImageFormats(NULL, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count), "no context");
}

static void samplers(void) {
	cl_int code;
	cl_sampler sampler = clCreateSampler(clt_context(), CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &code);
	MUST(code);
	cl_uint references = 0, normalized = 9, address = 0, filter = 0;
	cl_context context = NULL;
	MUST(clRetainSampler(sampler));
	MUST(clGetSamplerInfo(sampler, CL_SAMPLER_REFERENCE_COUNT, 4, &references, NULL));
	MUST(clGetSamplerInfo(sampler, CL_SAMPLER_NORMALIZED_COORDS, 4, &normalized, NULL));
	MUST(clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, 4, &address, NULL));
	MUST(clGetSamplerInfo(sampler, CL_SAMPLER_FILTER_MODE, 4, &filter, NULL));
	MUST(clGetSamplerInfo(sampler, CL_SAMPLER_CONTEXT, sizeof context, &context, NULL));
	CHECK(context == clt_context());
	clt_say("sampler", "references=%u normalized=%u address=%#x filter=%#x", references, normalized, address, filter);
	clt_code(clGetSamplerInfo(sampler, 0x9999, 4, &filter, NULL), "unknown name");
	MUST(clReleaseSampler(sampler));
	MUST(clReleaseSampler(sampler));
	sampler = clCreateSampler(clt_context(), CL_TRUE, 0x9999, CL_FILTER_LINEAR, &code);
	clt_code(code, "unknown address");
	if (sampler)
		MUST(clReleaseSampler(sampler));
	CHECK(clCreateSampler(NULL, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &code) == NULL);
	clt_code(code, "no context");
	clt_code(clReleaseSampler(NULL), "release null");
	if (clt_version() < 20)
		return;
	cl_sampler_properties list[] = {CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, CL_SAMPLER_FILTER_MODE, CL_FILTER_NEAREST, 0};
	sampler = clCreateSamplerWithProperties(clt_context(), list, &code);
	clt_code(code, "with properties");
	if (sampler) {
		MUST(clGetSamplerInfo(sampler, CL_SAMPLER_NORMALIZED_COORDS, 4, &normalized, NULL));
		MUST(clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, 4, &address, NULL));
		clt_say("with properties", "normalized=%u address=%#x", normalized, address);
		MUST(clReleaseSampler(sampler));
	}
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"transfer", transfer},
		{"pitches", pitches},
		{"host_pointers", host_pointers},
		{"old_creators", old_creators},
		{"refused", refused},
		{"transfer_refused", transfer_refused},
		{"fill", fill},
		{"copy", copy},
		{"maps", maps},
		{"map_refused", map_refused},
		{"from_buffer", from_buffer},
		{"kernel_turn", kernel_turn},
		{"kernel_samplers", kernel_samplers},
		{"kernel_sizes", kernel_sizes},
		{"kernel_volume", kernel_volume},
		{"info", info},
		{"formats_listed", formats_listed},
		{"samplers", samplers},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
