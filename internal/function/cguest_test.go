package function

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/need"
)

// cGuest builds a C guest.
func cGuest(t *testing.T, source string) []byte {
	t.Helper()
	for _, tool := range []string{"clang", "wasm-ld"} {
		need.Program(t, tool)
	}
	file := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "clang", "--target=wasm32", "-O2", "-Wall", "-Werror", "-nostdlib", "-Wl,--no-entry",
		"-I", "../../guest/c", "-o", file, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCGuest(t *testing.T) {
	f := deploy(t, open(t, Options{}), cGuest(t, "testdata/c/sum.c"), Limits{})
	for range 3 {
		p, err := f.Call(t.Context(), Request{Body: bytes.Repeat([]byte{3}, 1000)})
		if err != nil {
			t.Fatal(err)
		}
		if sum, calls := binary.LittleEndian.Uint32(p.Body), binary.LittleEndian.Uint32(p.Body[4:]); sum != 3000 || calls != 1 {
			t.Errorf("got %d in call %d", sum, calls)
		}
	}
	a, err := f.Call(t.Context(), Request{Entry: "roll"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := f.Call(t.Context(), Request{Entry: "roll"}); err != nil || bytes.Equal(a.Body, b.Body) {
		t.Errorf("got %x and %x, %v", a.Body, b.Body, err)
	}
	if _, err := f.Call(t.Context(), Request{Entry: "fail"}); err == nil || err.Error() != "call app/test: no tide" {
		t.Errorf("got %v", err)
	}
	checkFresh(t, f)
}

// TestCWindow hands a value on by place through a function in C, and lends it an arena.
func TestCWindow(t *testing.T) {
	f, err := open(t, Options{}).Deploy(t.Context(), cGuest(t, "testdata/c/step.c"), Settings{Name: "app/step"})
	if err != nil {
		t.Fatal(err)
	}
	if w := f.Window(); w != 1<<20 {
		t.Errorf("a window of %v, the module has room for 1 MiB", w)
	}
	a, board := newArena(t, 64<<10), newArena(t, 8192)
	place, err := a.Put([]byte("HAL"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"IBM", "JCN", "KDO"} {
		p, err := f.Call(t.Context(), Request{Arena: a, Place: &place})
		if err != nil || p.Place == nil || *p.Place != place {
			t.Fatalf("got %+v, %v", p, err)
		}
		if got, _ := a.Slice(*p.Place); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	board.Bytes()[8191], board.Bytes()[0] = 40, 2
	p, err := f.Call(t.Context(), Request{Entry: "lend", Arena: a, Resources: manifest(f, board)})
	if err != nil || string(p.Body) != "*hush" {
		t.Errorf("got %q, %v", p.Body, err)
	}
	checkFresh(t, f)
}

// TestCDevice has a function in C write a list of commands.
func TestCDevice(t *testing.T) {
	f := deploy(t, open(t, Options{}), cGuest(t, "testdata/c/kernel.c"), Limits{})
	gpu := &lister{}
	p, err := f.Call(t.Context(), Request{Body: []byte("tide"), Resources: &bag{things: map[string]Resource{"device:gpu": gpu}}})
	if err != nil || string(p.Body) != "read" {
		t.Errorf("got %q, %v", p.Body, err)
	}
	const source = "kernel void upper(global char *a, uint n) {}"
	little := binary.LittleEndian
	want := little.AppendUint64([]byte{1, 1, 0, 0, 0}, 4)
	want = little.AppendUint64(append(want, 7, 1, 0, 0, 0), 0)
	want = append(want, gpu.list[len(want):len(want)+4]...) // where the request lies
	want = append(want, 4, 0, 0, 0, 3, 2, 0, 0, 0, byte(len(source)), 0, 0, 0)
	want = append(want, source+"\x00\x00\x00\x00\x04\x02\x00\x00\x00\x05\x00\x00\x00upper\x01"...)
	want = little.AppendUint64(little.AppendUint64(want, 4), 0)
	want = append(want, 2, 2, 1, 0, 0, 0, 1, 4, 0, 0, 0, 7, 0, 0, 0)
	want = append(little.AppendUint64(append(want, 5, 1, 0, 0, 0), 0), 4, 0, 0, 0)
	if diff := cmp.Diff(want, gpu.list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if gpu.named != "tide" {
		t.Errorf("the list names %q", gpu.named)
	}
}

// lister is a device that keeps a list, and the memory that its second command names.
type lister struct {
	held
	list  []byte
	named string
}

func (l *lister) of(b *bag) Resource {
	l.held = held{b}
	return l
}

func (l *lister) Info() []byte { return nil }

func (l *lister) Do(_ context.Context, list []byte, memory func(at, size uint32) ([]byte, bool)) (DeviceResult, error) {
	l.list = bytes.Clone(list)
	at, size := binary.LittleEndian.Uint32(list[26:]), binary.LittleEndian.Uint32(list[30:])
	b, _ := memory(at, size)
	l.named = string(b)
	return DeviceResult{Read: []byte("read")}, nil
}

// TestCTransaction has a function in C write a transaction.
func TestCTransaction(t *testing.T) {
	f := deploy(t, open(t, Options{}), cGuest(t, "testdata/c/ops.c"), Limits{})
	p, err := f.Call(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	little := binary.LittleEndian
	var want []byte
	for _, op := range []struct {
		code       byte
		key, value string
		number     int64
	}{{1, "a", "one", 0}, {2, "b", "", 0}, {3, "left", "0", -1}, {4, "c", "", 0}, {5, "d", "", 7}, {6, "e", "x", 0}, {7, "f", "y", 1500}} {
		want = append(little.AppendUint32(append(want, op.code), uint32(len(op.key))), op.key...)
		want = append(little.AppendUint32(little.AppendUint64(want, uint64(op.number)), uint32(len(op.value))), op.value...)
	}
	if diff := cmp.Diff(want, p.Body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
