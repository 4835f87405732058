package opencl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/wire"
)

func packIncludes(files map[string]string) []byte {
	e := wire.NewEncoder(nil)
	e.U64(uint64(len(files)))
	for name, content := range files {
		e.String(name, true)
		e.Bytes([]byte(content))
	}
	return e.Body()
}

func newIncludes(dir string) *includes {
	return &includes{dir: dir, output: newOutput(nil, nil)}
}

// A second session of the same borrower finds the same folder, so that the
// driver's cache of programs finds the same options.
func TestIncludeFolderIsNamedByItsContents(t *testing.T) {
	dir := t.TempDir()
	packed := packIncludes(map[string]string{"0/a/x.h": "#define X 1\n"})
	var got []string
	for range 2 {
		options, err := newIncludes(dir).install(text{value: "-I/outboard-include/0/a -DY", present: true}, packed)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, options.value)
	}
	if got[0] != got[1] {
		t.Errorf("the options differ: %q, %q", got[0], got[1])
	}
	content, err := os.ReadFile(got[0][len("-I"):len(got[0])-len(" -DY")] + "/x.h")
	if err != nil || string(content) != "#define X 1\n" {
		t.Errorf("header reads %q, %v", content, err)
	}
	log := newIncludes(dir).hide([]byte("error in " + got[0][2:]))
	if diff := cmp.Diff("error in /outboard-include/0/a -DY", string(log)); diff != "" {
		t.Error(diff)
	}
}

func TestIncludeStaysInItsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "include")
	packed := packIncludes(map[string]string{"../../../evil.h": "x", "/abs/evil.h": "y"})
	if _, err := newIncludes(dir).install(text{}, packed); err != nil {
		t.Fatal(err)
	}
	outside, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*"))
	if err != nil || len(outside) != 1 {
		t.Errorf("got %v, want the include folder alone (%v)", outside, err)
	}
}

func TestIncludeRefusesBrokenLists(t *testing.T) {
	whole := packIncludes(map[string]string{"0/x.h": "abc"})
	for name, packed := range map[string][]byte{
		"truncated": whole[:len(whole)-8],
		"too many":  func() []byte { e := wire.NewEncoder(nil); e.U64(1 << 40); return e.Body() }(),
		"left over": append(whole, 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := newIncludes(dir).install(text{}, packed); err == nil {
				t.Error("taken")
			}
			if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func TestForgetOldest(t *testing.T) {
	dir := t.TempDir()
	for i := range maxIncludeDirs + 5 {
		packed := packIncludes(map[string]string{"0/x.h": string(rune('a' + i))})
		if _, err := newIncludes(dir).install(text{}, packed); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != maxIncludeDirs {
		t.Errorf("%d folders are kept, want %d (%v)", len(left), maxIncludeDirs, err)
	}
}
