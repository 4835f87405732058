package cltest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/accel/gen"
)

// TestLocalDrivers runs the programs over the local drivers: the checks of every case hold there.
func TestLocalDrivers(t *testing.T) {
	suite := Build(t)
	t.Run("pocl", func(t *testing.T) { suite.Compare(t, Options{}) })
	t.Run("oclgrind", func(t *testing.T) { suite.Compare(t, Options{Driver: Oclgrind(t)}) })
}

// withoutOrder are the functions that have no row in order.c, with the reason.
var withoutOrder = map[string]string{
	"clUnloadCompiler":              "takes nothing",
	"clSVMAlloc":                    "returns no error",
	"clSVMFree":                     "returns no error",
	"clGetExtensionFunctionAddress": "returns no error",
	"clGetExtensionFunctionAddressForPlatform": "returns no error",
	"clSetCommandQueueProperty":                "event/set_property calls it",
}

// TestOrderIsWhole checks that order.c has a row for every function of the API description.
func TestOrderIsWhole(t *testing.T) {
	description, err := os.ReadFile("../opencl.api")
	if err != nil {
		t.Fatal(err)
	}
	api, err := gen.Parse(string(description))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := sources.ReadFile("c/order.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range api.Calls {
		has := strings.Contains(string(rows), "\tROW("+call.Name+"),")
		if reason, exempt := withoutOrder[call.Name]; has == exempt {
			t.Errorf("%s: row in order.c: %t; why it may have none: %q", call.Name, has, reason)
		}
	}
}

// A program that dies in a case is started again for the cases after it.
func TestRecord(t *testing.T) {
	r := &result{cases: map[string]*caseResult{}}
	left := r.record(parse([]byte("a: ok\nb x: 1\n"), []string{"a", "b", "c"}), []string{"a", "b", "c"}, "why")
	if diff := cmp.Diff(left, []string{"c"}); diff != "" {
		t.Errorf("left: got (-) want (+):\n%s", diff)
	}
	want := map[string]*caseResult{"a": {last: "ok"}, "b": {lines: []string{"b x: 1"}, exitReason: "why"}}
	if diff := cmp.Diff(r.cases, want, cmp.AllowUnexported(caseResult{})); diff != "" {
		t.Errorf("cases: got (-) want (+):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	output := []byte("a x: 1\nsome kernel's words\na FAILED f.c:3: no\na: FAILED\nb: ok\nc y: 2\n")
	got := parse(output, []string{"a", "b", "c"})
	want := map[string]*caseResult{
		"a": {lines: []string{"a x: 1", "some kernel's words", "a FAILED f.c:3: no"}, last: "FAILED"},
		"b": {last: "ok"},
		"c": {lines: []string{"c y: 2"}},
	}
	if diff := cmp.Diff(got, want, cmp.AllowUnexported(caseResult{})); diff != "" {
		t.Errorf("got (-) want (+):\n%s", diff)
	}
}

func TestComparable(t *testing.T) {
	r := &caseResult{lines: []string{"a x: 1", "a xy: 2", "a z, 3: 4", "a FAILED f.c:3: no"}, last: "ok"}
	differs := map[string]string{"p/a x": "one", "p/a z,": "another"}
	if diff := cmp.Diff(compared("p/a", r, differs), []string{"a xy: 2", "ok"}); diff != "" {
		t.Errorf("got (-) want (+):\n%s", diff)
	}
}
