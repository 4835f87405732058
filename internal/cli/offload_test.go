package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// runRanks runs a script of testdata on this machine and returns what was printed.
func runRanks(t *testing.T, script string, args []string, flags ...string) (status int, stdout, stderr string) {
	t.Helper()
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	if script, err = filepath.Abs(filepath.Join("testdata", script)); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	env := &Env{Stdout: &out, Stderr: &errs, Environ: append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir())}
	command := append(append([]string{"train"}, flags...), "--", "/usr/bin/python3", script)
	status = env.Run(t.Context(), append(command, args...))
	return status, out.String(), errs.String()
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
