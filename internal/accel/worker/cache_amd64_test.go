package worker

import (
	"crypto/sha256"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/lend"
)

// poison is a kernel that replaces its own compiled code, wherever it was loaded from, by
// something else. The results are those of opening /proc/self/maps, unlinking, creating and
// writing; the last number says that it has run.
const poison = `
long call(long number, long a, long b, long c) {
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}
kernel void k(global int *out) {
	if (get_global_id(0) != 0) return;
	char maps[] = "/proc/self/maps", junk[] = "junk", text[4096];
	long f = call(2, (long)maps, 0, 0);
	out[0] = f;
	int at = 0;
	for (long n = 1; n > 0;) {
		n = call(0, f, (long)(text + at), 1);
		if (text[at] == '\n') at = 0; else if (at < 4000) at++;
		char end = text[at]; text[at] = 0;
		if (at > 10 && text[at - 3] == '.' && text[at - 2] == 's' && text[at - 1] == 'o') {
			int p = 0;
			while (p < at && text[p] != '/') p++;
			if (text[p + 1] == 'c' && text[p + 2] == 'a' && text[p + 3] == 'c' && text[p + 4] == 'h' && text[p + 5] == 'e') {
				out[1] = call(87, (long)(text + p), 0, 0);
				long g = call(2, (long)(text + p), 0101, 0777);
				out[2] = g;
				out[3] = call(1, g, (long)junk, 4);
				break;
			}
		}
		text[at] = end;
	}
	out[15] = 7;
}`

// A kernel that replaces its own compiled code harms no later session of its program: what
// sessions find in the cache was put there by a process in which no kernel runs.
func TestPoisonedCache(t *testing.T) {
	requireDevice(t)
	dir := t.TempDir()
	h, err := lend.Open(t.Context(), lend.Options{Dir: dir, Command: []string{os.Args[0], workerArgument}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	poisonCache(t, h)
	clean := awaitCompiled(t, dir)
	if len(clean) == 0 {
		t.Skip("this machine can't keep a cache from sessions that use it")
	}
	for range 2 { // warm, and after a warm session's attack
		poisonCache(t, h)
	}
	after := compiledKernels(t, dir)
	if len(after) != len(clean) {
		t.Errorf("%d compiled kernels in the cache, want %d", len(after), len(clean))
	}
	for path, sum := range clean {
		if after[path] != sum {
			t.Errorf("%s was changed", path)
		}
	}
}

// poisonCache runs the hostile kernel in a session.
func poisonCache(t *testing.T, h *lend.Host) {
	t.Helper()
	s, p := startSession(t, h, "poison")
	defer s.Close()
	got, err := p.kernel(poison)
	if err != nil {
		t.Fatalf("a session of the program: %v, %v", err, s.Err())
	}
	result := func(i int) int32 { return int32(binary.LittleEndian.Uint32(got[4*i:])) }
	if result(15) != 7 || result(0) < 0 || result(1) != 0 || result(2) < 0 || result(3) != 4 {
		t.Errorf("the attack was not carried out: open %d, unlink %d, create %d, write %d", result(0), result(1), result(2), result(3))
	}
}

// awaitCompiled waits until the compile step has put a compiled kernel into a cache.
func awaitCompiled(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	for t.Context().Err() == nil {
		for path, sum := range compiledKernels(t, dir) {
			if !strings.Contains(path, "/draft/") {
				return map[string][32]byte{path: sum}
			}
		}
		_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	}
	return nil
}

// compiledKernels are the sums of the compiled kernels in the caches of a host.
func compiledKernels(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	_ = filepath.WalkDir(filepath.Join(dir, "cache"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".so") {
			if text, err := os.ReadFile(path); err == nil {
				sums[path] = sha256.Sum256(text)
			}
		}
		return nil
	})
	return sums
}
