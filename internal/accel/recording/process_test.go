package recording

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/need"
)

// buildCalls builds a program with the driver library's recorder that records calls.
func buildCalls(t *testing.T) string {
	t.Helper()
	need.Program(t, "gcc")
	const library = "../../../cmd/libsession/record"
	path := filepath.Join(t.TempDir(), "calls")
	build := exec.Command("gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"+library,
		"-o", path, "testdata/calls.c", library+"/record.c", "-lpthread")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return path
}

// TestProcess joins what the driver library has recorded of a process, whether it ended or was
// killed.
func TestProcess(t *testing.T) {
	const threads, calls = 3, 20_000 // some 30 chunks for each thread
	program := buildCalls(t)
	for name, test := range map[string]struct {
		args, env []string
		limited   bool
	}{
		"ended":     {},
		"killed":    {args: []string{"killed"}},
		"limited":   {env: []string{"OUTBOARD_TRACE_LIMIT=" + strconv.Itoa(40*chunkSize)}, limited: true},
		"one chunk": {env: []string{"OUTBOARD_TRACE_LIMIT=" + strconv.Itoa(chunkSize)}, limited: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(program, append([]string{fmt.Sprint(threads), fmt.Sprint(calls)}, test.args...)...)
			cmd.Env = append(append(os.Environ(), "OUTBOARD_TRACE="+dir), test.env...)
			out, err := cmd.Output()
			if (err != nil) != (test.args != nil) {
				t.Fatalf("%v: %s", err, out)
			}
			r, records, err := joinFolder(t, trace.Local, nil, dir)
			if err != nil {
				t.Fatal(err)
			}
			end := r.End()
			if end == nil || len(records)+int(end.Lost) != (threads+1)*calls || (end.Lost > 0) != test.limited {
				t.Errorf("%d records and %d lost ones of %d calls", len(records), end.Lost, (threads+1)*calls)
			}
			// A system that writes the file to its disk meanwhile causes some: 16 every few seconds.
			if faults, err := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || faults > 200 {
				t.Errorf("%d page faults for %d calls, %v", faults, calls, err)
			}
		})
	}
}

// TestProcessAfterExec: a program that another one became has a recording of its own, although its
// process id is the same.
func TestProcessAfterExec(t *testing.T) {
	const calls = 100
	dir := t.TempDir()
	cmd := exec.Command(buildCalls(t), "0", strconv.Itoa(calls), "again")
	cmd.Env = append(os.Environ(), "OUTBOARD_TRACE="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "not recorded") {
		t.Fatalf("%v: %s", err, out)
	}
	_, records, err := joinFolder(t, trace.Local, nil, dir)
	if err != nil || len(records) != 2*calls || records[2*calls-1].Process != 1 {
		t.Errorf("%d records of %d calls: %v", len(records), 2*calls, err)
	}
}

// TestProcessOnAFullDisk: a recording leaves room for the trace that is made of it.
func TestProcessOnAFullDisk(t *testing.T) {
	need.Program(t, "unshare")
	const calls, size = 100_000, 4 << 20
	program, dir := buildCalls(t), t.TempDir()
	script := fmt.Sprintf(`mkdir "$1/disk" && mount -t tmpfs -o size=%d none "$1/disk" && OUTBOARD_TRACE="$1/disk" "$2" 0 %d && cp "$1"/disk/*.rec "$1"`, size, calls)
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", dir, program)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r, records, err := joinFolder(t, trace.Local, nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	if end := r.End(); end == nil || len(records) < calls/10 || len(records)+int(end.Lost) != calls {
		t.Errorf("%d records of %d calls, and %+v", len(records), calls, end)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.rec"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Size() > size*3/4 {
		t.Errorf("a file of %d bytes on a disk of %d: %v", info.Size(), size, err)
	}
}

// TestCopiedWindow: a stream's first chunk has the newest records, and counts where the process was
// killed before it began the chunk anew.
func TestCopiedWindow(t *testing.T) {
	at := func(number uint64) []byte {
		return call(rawCall{op: 1, number: number, begin: int64(2000 + 10*number), duration: 5})
	}
	newest := (&raw{}).indexed(threadStream, 1, 0, 2, at(2)).indexed(threadStream, 1, 0, 0, at(0)).indexed(threadStream, 1, 0, 1, at(1))
	twice := (&raw{}).indexed(threadStream, 1, 0, 1, at(1), at(2)).indexed(threadStream, 1, 0, 0, at(0)).indexed(threadStream, 1, 0, 1, at(1), at(2))
	for name, file := range map[string][]byte{
		"newest first": newest.bytes(),
		"copied":       twice.bytes(),
		"cut off":      twice.bytes()[:2*chunkSize+chunkHeadSize+8],
		"not begun":    append(twice.bytes()[:2*chunkSize], make([]byte, chunkSize)...),
	} {
		_, records, err := joined(t, trace.Local, nil, file)
		if err != nil || len(records) != 3 || records[0].Begin != 1500 || records[2].Begin != 1520 {
			t.Errorf("%s: %+v, %v", name, records, err)
		}
	}
}
