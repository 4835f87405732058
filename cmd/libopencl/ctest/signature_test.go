package ctest_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSignature(t *testing.T) {
	program := buildC(t, "testdata/signature.c", "../source/signature.c")
	for name, test := range map[string]struct {
		source string
		count  int
		want   string
	}{
		"buffers":              {"kernel void f(__global int *a, global const float4* restrict b, constant char *c, const global int *d) {}", 4, "pointer 0 0\npointer reads 0 0\npointer reads 0 0\npointer reads 0 0\n"},
		"constant pointer":     {"kernel void f(global int * const a) {}", 1, "pointer 0 0\n"},
		"values":               {"kernel void f(int a, float4 b, uchar3 c, unsigned int d, const double16 e, half f) {}", 6, "value 4 0\nvalue 16 0\nvalue 4 3\nunknown 0 0\nvalue 128 0\nvalue 2 0\n"},
		"local":                {"kernel void f(__local float *a, local int b[]) {}", 2, "local 0 0\nlocal 0 0\n"},
		"objects":              {"kernel void f(image2d_t a, write_only image3d_t b, __read_write image1d_buffer_t c, sampler_t d, queue_t e, read_only pipe int f) {}", 6, "image reads 0 0\nimage 0 0\nimage 0 0\nsampler 0 0\nqueue 0 0\npipe 0 0\n"},
		"types of the program": {"typedef struct {int a;} s; kernel void f(s a, struct t b, MACRO *c, REAL d) {}", 4, "unknown 0 0\nunknown 0 0\nunknown 0 0\nunknown 0 0\n"},
		"a type redefined":     {"#define float double\nkernel void f(float a, int b) {}", 2, "unknown 0 0\nvalue 4 0\n"},
		"attributes":           {"__kernel __attribute__((reqd_work_group_size(1, 2, 3)))\nvoid\nf (__global int *a, int b __attribute__((aligned(4)))) {}", 2, "pointer 0 0\nunknown 0 0\n"},
		"comments":             {"kernel void f(/* , */ int a, // global int *\n global int *b) {}\n/* kernel void f(int a, int b) {} */", 2, "value 4 0\npointer 0 0\n"},
		"two that agree":       {"#ifdef A\nkernel void f(global int *a) {}\n#else\nkernel void f(const global int *b) {}\n#endif", 1, "pointer 0 0\n"},
		"two that differ":      {"#ifdef A\nkernel void f(global int *a, int b) {}\n#else\nkernel void f(local int *a, int b) {}\n#endif", 2, "unknown 0 0\nvalue 4 0\n"},
		"another count":        {"kernel void f(global int *a) {}\nkernel void f(int a, int b) {}", 2, "value 4 0\nvalue 4 0\n"},
		"a call of it":         {"kernel void f(int a) {} kernel void g(global int *p) { f(p); }", 1, "value 4 0\n"},
		"directives within":    {"kernel void f(int a,\n#ifdef X\nint b\n#else\nglobal int *b\n#endif\n) {}", 2, "unknown 0 0\nunknown 0 0\n"},
		"part of a name":       {"kernel void ff(int a) {} kernel void f_(int a) {} void xf(int a);", 1, "unknown 0 0\n"},
		"nothing":              {"", 1, "unknown 0 0\n"},
		"cut off":              {"kernel void f(global int *a", 1, "unknown 0 0\n"},
		"no arguments":         {"kernel void f(void) {} kernel void f() {}", 1, "unknown 0 0\n"},
		"absurd widths":        {"kernel void f(float5 a, int0 b, char99 c, int2x d)", 4, "unknown 0 0\nunknown 0 0\nunknown 0 0\nunknown 0 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(runC(t, program, test.source, "f", fmt.Sprint(test.count)), test.want); diff != "" {
				t.Errorf("-got +want:\n%s", diff)
			}
		})
	}
}
