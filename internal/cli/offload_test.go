package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// runRanks runs a script of testdata on this machine and returns what was printed.
func runRanks(t *testing.T, script string, args []string, flags ...string) (status int, stdout, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	status, stdout = runRanksTo(t, &errs, nil, script, args, flags...)
	return status, stdout, errs.String()
}

// runRanksTo is runRanks with variables of the environment, and a writer of the standard error.
func runRanksTo(t *testing.T, stderr io.Writer, environ []string, script string, args []string, flags ...string) (status int, stdout string) {
	t.Helper()
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	if script, err = filepath.Abs(filepath.Join("testdata", script)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	env := &Env{Stdout: &out, Stderr: stderr, Environ: append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir()), environ...)}
	command := append(append([]string{"train"}, flags...), "--", "/usr/bin/python3", script)
	status = env.Run(t.Context(), append(command, args...))
	return status, out.String()
}

// Training with a quarter of its saved tensors on the device comes to the same bits: the others are
// on the host, on a disk, or on both, and no file is left or even has a name.
func TestOffloadedTensorsAreBitEqual(t *testing.T) {
	for name, c := range map[string]struct {
		sizes      []string
		host, disk bool
	}{
		"host": {[]string{"700000", "8000000", "0"}, true, false},
		"disk": {[]string{"700000", "0", "8000000"}, false, true},
		"both": {[]string{"400000", "500000", "8000000"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, out, errs := runRanks(t, "offload.py", c.sizes, "--why")
			_, text, _ := strings.Cut(out, "offload ")
			var moved struct {
				Host, Disk, Peak, Left int64
				Equal, Planned         bool
				Files                  []string
			}
			if err := json.Unmarshal([]byte(text), &moved); status != 0 || err != nil {
				t.Fatalf("status %d, %v: %s%s", status, err, out, errs)
			}
			if !moved.Equal || moved.Host > 0 != c.host || moved.Disk > 0 != c.disk || len(moved.Files) > 0 || moved.Left != 0 {
				t.Errorf("got %+v", moved)
			}
			// A tensor that is being saved, or that the backward pass waits for, may lie above the limit.
			if limit := int64(700000); moved.Peak > limit+2*16*8*144*4 {
				t.Errorf("%d bytes were on the device", moved.Peak)
			}
			if !moved.Planned || !regexp.MustCompile(`rank 0, memory: \d+ saved tensors: .*on the `+name[:3]).MatchString(errs) && name != "both" {
				t.Errorf("planned %v: %s", moved.Planned, errs)
			}
		})
	}
}

// A transfer that fails, in whatever way, ends the program's wait with its error, and every later
// one: nothing hangs.
func TestFailedTransfersOfSavedTensors(t *testing.T) {
	wants := map[string]string{
		"write": "No space left on device", "read": "ends at byte 0", "memory": "can't allocate memory", "write-bytes": "no bytes of this tensor",
	}
	status, out, errs := runRanks(t, "offload_errors.py", slices.Sorted(maps.Keys(wants)))
	if status != 0 || strings.Contains(out, "no error") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	for kind, want := range wants {
		if n := len(regexp.MustCompile(`(?m)^\[0\] `+kind+` error .*`+want).FindAllString(out, -1)); n != 2 {
			t.Errorf("%s: %d of 2 attempts end with %q: %s%s", kind, n, want, out, errs)
		}
	}
}

// A rank that makes no progress writes where its threads are, while it waits.
func TestStalledRankShowsItsStacks(t *testing.T) {
	shown := filepath.Join(t.TempDir(), "shown")
	stderr := &stackWriter{shown: shown}
	status, out := runRanksTo(t, stderr, []string{"OUTBOARD_STALL=1"}, "stall.py", []string{shown})
	if status != 0 || !strings.Contains(out, "released") {
		t.Errorf("status %d: %s%s", status, out, stderr.text.String())
	}
}

// A stackWriter creates the file shown when stacks and their explanation were written to it.
type stackWriter struct {
	text  bytes.Buffer
	shown string
}

func (w *stackWriter) Write(b []byte) (int, error) {
	w.text.Write(b)
	if t := w.text.String(); strings.Contains(t, "in stand_still") && strings.Contains(t, "OUTBOARD_STALL sets the seconds") {
		return len(b), os.WriteFile(w.shown, nil, 0o600)
	}
	return len(b), nil
}

// Where no tier has room the rank says how much each has, and how to get on.
func TestNoRoomForSavedTensors(t *testing.T) {
	status, out, errs := runRanks(t, "offload.py", []string{"100000", "100000", "100000"})
	if status == 0 || !strings.Contains(errs, "no room for a saved tensor of") || !strings.Contains(errs, "give --offload more") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

func TestOffloadIsRefused(t *testing.T) {
	for _, c := range []struct{ limits, want string }{{"disk=1GB", "want the device's SIZE"}, {"device=1,disk=9999TiB", "want device=SIZE"}, {"device=1,disk=15TiB", "make room"}} {
		var out, errs bytes.Buffer
		env := &Env{Stdout: &out, Stderr: &errs}
		if status := env.Run(t.Context(), []string{"train", "--ranks", "64", "--offload", c.limits, "--", "/bin/true"}); status == 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: status %d: %s", c.limits, status, errs.String())
		}
	}
}

// A rank measures its steps with each number of threads, and computes with what was chosen.
func TestThreadsByMeasurement(t *testing.T) {
	status, out, errs := runRanks(t, "threads.py", nil, "--threads", "auto", "--why")
	if status != 0 || !strings.Contains(out, "threads True True True") || !regexp.MustCompile(`rank 0, threads: \d+ to compute`).MatchString(errs) {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if status, _, errs := runRanks(t, "threads.py", nil, "--threads", "many"); status == 0 || !strings.Contains(errs, "want auto, or 1 to") {
		t.Errorf("status %d: %s", status, errs)
	}
}
