package driver

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

func libc(t testing.TB) *Library {
	t.Helper()
	l, err := Open("libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOpenMissing(t *testing.T) {
	_, err := Open("libnosuchdriver.so.9")
	var e *outboard.Error
	if !errors.As(err, &e) || e.Kind != outboard.NoDevice || e.Op != "load driver libnosuchdriver.so.9" {
		t.Errorf("Open: %v", err)
	}
}

func TestCall(t *testing.T) {
	table := libc(t).Bind([]string{"", "strnlen", "no_such_function", "memcmp"})
	var has []bool
	for i := range 5 {
		has = append(has, table.Has(i))
	}
	if diff := cmp.Diff(has, []bool{false, true, false, true, false}); diff != "" {
		t.Error(diff)
	}
	frame, err := NewFrame()
	if err != nil {
		t.Fatal(err)
	}
	defer frame.Close()
	text, err := frame.Bytes(6)
	if err != nil {
		t.Fatal(err)
	}
	copy(text, "hello")
	if got := table.Call(1, Address(text), 100); got != 5 {
		t.Errorf("strnlen: %d, want 5", got)
	}
}

// TestCallFromDeepStacks calls while goroutines' stacks grow and move.
func TestCallFromDeepStacks(t *testing.T) {
	l := libc(t)
	strlen := l.Lookup("strlen")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			frame, err := NewFrame()
			if err != nil {
				t.Error(err)
				return
			}
			defer frame.Close()
			deep(t, l, strlen, frame, 2000)
		})
	}
	wg.Wait()
}

func deep(t *testing.T, l *Library, strlen uintptr, frame *Frame, depth int) {
	var pad [256]byte
	if depth == 0 {
		return
	}
	frame.Reset()
	text, err := frame.Bytes(depth%100 + 1)
	if err != nil {
		t.Error(err)
		return
	}
	for i := range len(text) - 1 {
		text[i] = 'x'
	}
	if got := l.Call(strlen, Address(text)); int(got) != depth%100 {
		t.Errorf("strlen: %d, want %d", got, depth%100)
	}
	deep(t, l, strlen, frame, depth-1)
	_ = pad
}

// TestCallback sorts by a comparison that is written in Go.
func TestCallback(t *testing.T) {
	l, c := libc(t), NewCallbacks()
	calls := 0
	addr, token := c.Event(func(int32) { calls++ })
	for range 3 { // only the first finds its function
		l.Call(addr, 1, 0, token)
	}
	if calls != 1 || len(c.funcs) != 0 {
		t.Errorf("%d calls of a callback that fires once, %d left", calls, len(c.funcs))
	}
	var text string
	addr, token = c.Context(func(s string, private []byte) { text = s + "/" + string(private) })
	words, err := Alloc(16)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(words)
	copy(words, "oops\x00data")
	l.Call(addr, Address(words), Address(words)+5, 4, token)
	if want := "oops/data"; text != want {
		t.Errorf("context callback: %q, want %q", text, want)
	}
	c.Drop(token)
	text = ""
	l.Call(addr, Address(words), 0, 0, token)
	if text != "" {
		t.Error("a dropped callback was called")
	}
}

func TestFrame(t *testing.T) {
	f, err := NewFrame()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		a, _ := f.Bytes(5)
		b, _ := f.Bytes(5)
		big, err := f.Bytes(2 * frameSize)
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint32(a, 7)
		if Address(a)%16 != 0 || Address(b)-Address(a) != 16 || len(big) != 2*frameSize || b[0] != 0 {
			t.Errorf("frame gave %#x, %#x, %d bytes", Address(a), Address(b), len(big))
		}
		f.Reset()
	}
}

func TestClean(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.icd"), []byte("/x/liboutboard-opencl.so\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ socket, vendors, want string }{
		"nothing set":          {"", "", ""},
		"inside outboard run":  {"/run/x", "/etc/vendors", ""},
		"a folder that has us": {"", dir, ""},
		"a file that is ours":  {"", filepath.Join(dir, "a.icd"), ""},
		"our library":          {"", "/opt/outboard/libopencl.so", ""},
		"somebody else's":      {"", "/etc/OpenCL/vendors", "/etc/OpenCL/vendors"},
	}
	getenv := libc(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OUTBOARD_SOCKET", test.socket)
			t.Setenv("OCL_ICD_VENDORS", test.vendors)
			if err := Clean(); err != nil {
				t.Fatal(err)
			}
			key, err := Alloc(32)
			if err != nil {
				t.Fatal(err)
			}
			defer Free(key)
			copy(key, "OCL_ICD_VENDORS")
			// What matters is what the library sees, not what Go does.
			got := String(getenv.Call(getenv.Lookup("getenv"), Address(key)), 1000)
			if got != test.want || os.Getenv("OUTBOARD_SOCKET") != "" {
				t.Errorf("vendors are %q, want %q", got, test.want)
			}
		})
	}
}

func BenchmarkCall(b *testing.B) {
	l := libc(b)
	abs := l.Lookup("abs")
	b.ReportAllocs()
	for b.Loop() {
		l.Call(abs, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	}
}
