package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/train/profile"
)

// train runs a script of testdata/train and returns the lines that it wrote, sorted, and the exit
// status.
func train(t *testing.T, ranks, script string, args ...string) (lines []string, status int) {
	t.Helper()
	return trainWith(t, []string{"--ranks", ranks}, script, args...)
}

// torchFolder has another version of PyTorch, and this project's package; "" for Debian's.
var torchFolder string

// trainCommand returns the command that runs a script of testdata/train.
func trainCommand(t *testing.T, flags []string, script string, args ...string) *exec.Cmd {
	t.Helper()
	need.Require(t, "python3-torch", exists("/usr/lib/python3/dist-packages/torch"), "install python3-torch")
	packages, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	script, err = filepath.Abs(filepath.Join("testdata", "train", script))
	if err != nil {
		t.Fatal(err)
	}
	args = slices.Concat([]string{"train"}, flags, []string{"--", "/usr/bin/python3", script}, args)
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	if torchFolder != "" {
		packages = torchFolder
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1")
	return cmd
}

// trainWith is train with any flags.
func trainWith(t *testing.T, flags []string, script string, args ...string) (lines []string, status int) {
	t.Helper()
	out, err := trainCommand(t, flags, script, args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	lines = strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	return lines, status
}

// Two ranks add two numbers, whose sum does not depend on the order: PyTorch's own back end must
// come to the same parameters, to the last bit. Small all-reduces, which the program's thread makes
// itself, have their results however the program waits for them, and messages block neither each
// other nor calls. One job has the calls of both back ends, direct.py and messages.py, since most of
// what a job costs here is that each rank imports PyTorch.
func TestTrainingEqualsGloo(t *testing.T) {
	beside(t)
	for _, c := range []struct {
		script        string
		ranks, checks int
	}{{"ddp.py", 2, 0}, {"collectives.py", 3, 29}} {
		t.Run(c.script, func(t *testing.T) {
			lines, status := train(t, strconv.Itoa(c.ranks), c.script, "gloo", "outboard")
			if equal := equalLines(lines); equal != c.ranks*c.checks {
				t.Errorf("%d of %d checks are equal:\n%s", equal, c.ranks*c.checks, strings.Join(lines, "\n"))
			}
			results := map[string][]string{}
			for _, l := range lines {
				_, text, _ := strings.Cut(l, "] ")
				backend, result, _ := strings.Cut(text, ": ")
				results[backend] = append(results[backend], result)
			}
			want, got := results["gloo"], results["outboard"]
			if status != 0 || len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("status %d,\n%s\nwant that both back ends print the same", status, strings.Join(lines, "\n"))
			}
		})
	}
}

// trainEqual runs a script whose ranks each print "NAME equal" for so many checks.
func trainEqual(t *testing.T, ranks int, script string, checks int) {
	t.Helper()
	lines, status := train(t, strconv.Itoa(ranks), script)
	if equal := equalLines(lines); status != 0 || equal != ranks*checks {
		t.Errorf("status %d, %d of %d equal:\n%s", status, equal, ranks*checks, strings.Join(lines, "\n"))
	}
}

// equalLines counts the lines that end with " equal".
func equalLines(lines []string) (count int) {
	for _, l := range lines {
		if strings.HasSuffix(l, " equal") {
			count++
		}
	}
	return count
}

func TestRanksThatDisagreeEndWithBothLines(t *testing.T) {
	beside(t)
	lines, status := train(t, "2", "mismatch.py")
	text := strings.Join(lines, "\n")
	if status != 1 || !strings.Contains(text, "ranks disagree in call 1") ||
		!strings.Contains(text, "mismatch.py:10") || !strings.Contains(text, "mismatch.py:12") {
		t.Errorf("status %d,\n%s\nwant both lines of the script", status, text)
	}
}

// A call that fails during a backward pass raises an exception in it, though C++ code of PyTorch
// waits for the call.
func TestFailedCallRaisesInBackward(t *testing.T) {
	beside(t)
	lines, status := train(t, "2", "failing.py")
	if text := strings.Join(lines, "\n"); status != 0 || !strings.Contains(text, "rank 0: True") || !strings.Contains(text, "rank 1: True") {
		t.Errorf("status %d,\n%s\nwant an exception in both ranks", status, text)
	}
}

// A call ends with the time-out that the program has given its group; other groups go on.
func TestTimeoutOfAGroup(t *testing.T) {
	beside(t)
	lines, status := train(t, "2", "timeout.py")
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"[0] message: the call has not ended within 1 s", "[0] small: the call has not ended within 1 s",
		"[0] total: 2.0", "[1] total: 2.0",
	} {
		if status != 0 || !strings.Contains(text, want) {
			t.Fatalf("status %d, want %q:\n%s", status, want, text)
		}
	}
}

// A program may destroy its groups and make new ones, which have the same names. What the destroyed ones
// hold is released.
func TestGroupsAreMadeAgain(t *testing.T) {
	beside(t)
	trainEqual(t, 3, "again.py", 7)
}

// A profile of an ordinary script has its layers, and what is printed says where the time goes.
func TestProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	lines, status := trainWith(t, []string{"--ranks", "2", "--profile", path}, "ddp.py", "outboard")
	text := strings.Join(lines, "\n")
	for _, want := range []string{"communication (beside these)", "0:Linear", "1:ReLU", "2:Linear", "AT THE PEAK", "ddp.py:", "FRAGMENTED", "COMMUNICATION"} {
		if status != 0 || !strings.Contains(text, want) {
			t.Fatalf("status %d, want %q:\n%s", status, want, text)
		}
	}
	p, err := profile.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// 64 inputs, 128 outputs and as many biases of float32; a pass has 32 samples.
	if l := p.Layers[0]; len(p.Layers) != 3 || l.Parameters != 4*(64*128+128) || l.Output != 4*128 || !(l.Forward > 0 && l.Backward > 0) {
		t.Errorf("got %+v", p.Layers)
	}
	if len(p.Ranks) != 2 || p.Ranks[1].Rank != 1 || p.Ranks[1].Memory.Tensors == nil || !(p.Ranks[1].Where.Communication > 0) {
		t.Errorf("got %+v, want a summary of each rank", p.Ranks)
	}
}

// A profile has all layers of a program that calls its loss as a module and accumulates gradients, and
// the communication of some of its passes.
func TestProfileOfAnOrdinaryProgram(t *testing.T) {
	beside(t)
	path := filepath.Join(t.TempDir(), "profile.json")
	lines, status := trainWith(t, []string{"--ranks", "2", "--profile", path}, "profiled.py")
	p, err := profile.ReadFile(path)
	if status != 0 || err != nil {
		t.Fatalf("status %d, %v:\n%s", status, err, strings.Join(lines, "\n"))
	}
	var names []string
	for _, l := range p.Layers {
		names = append(names, l.Name)
		if !(l.Forward > 0 && l.Backward > 0 && l.Parameters > 0) {
			t.Errorf("got %+v", l)
		}
	}
	if want := []string{"0:Embedding", "1:MultiheadAttention", "2:LSTM", "3:Linear"}; !slices.Equal(names, want) {
		t.Errorf("the layers are %v, want %v", names, want)
	}
	if w := p.Where; !(w.Communication > 0) || w.Forward+w.Backward > w.Seconds {
		t.Errorf("got %+v", w)
	}
}

// The step of the optimizer counts for each of the passes whose gradients it applies, and a module that
// raises an error, which the program catches, changes no time.
func TestProfileOfStepsAndErrors(t *testing.T) {
	beside(t)
	path := filepath.Join(t.TempDir(), "profile.json")
	lines, status := trainWith(t, []string{"--ranks", "1", "--profile", path}, "steps.py")
	p, err := profile.ReadFile(path)
	if status != 0 || err != nil {
		t.Fatalf("status %d, %v:\n%s", status, err, strings.Join(lines, "\n"))
	}
	if w := p.Where; w.Forward != 1 || w.Backward != 2 || w.Other() != 2 || len(p.Layers) != 1 || p.Layers[0].Name != "0:Layer" {
		t.Errorf("got %+v, layers %+v", w, p.Layers)
	}
}

// A profile says where the memory of a pass goes: by line and operator, from where to where tensors
// live, and over time. The passes that were watched for it do not count for times.
func TestProfileOfMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	cmd := trainCommand(t, []string{"--ranks", "1", "--profile", path, "-o", "json"}, "memory.py")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if equal := equalLines(strings.Split(errs.String(), "\n")); err != nil || equal != 2 {
		t.Fatalf("%v: %d of 2 checks are equal:\n%s", err, equal, errs.String())
	}
	var p profile.Profile
	if err := json.Unmarshal(out.Bytes(), &p); err != nil || p.Memory.Tensors == nil || p.Memory.Watched == nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	// Four layers of 256 x 256 with bias, and outputs of 64 samples, of float32.
	const parameters, activation = 4 * 4 * (256*256 + 256), 4 * 64 * 256
	m := p.Memory.Tensors
	kept := map[string]profile.Storages{}
	for _, l := range m.Lives {
		kept[l.Allocated+" "+l.Freed] = l.Storages
	}
	if activations := kept["forward backward"]; activations.Bytes < 4*activation || activations.Seconds == nil {
		t.Errorf("%+v live from the forward to the backward pass, want four activations", activations)
	}
	if state := kept["earlier later"]; state.Bytes < 2*parameters || state.Seconds != nil {
		t.Errorf("%+v live through the pass, want parameters and momenta", state)
	}
	if m.Peak < 3*parameters+4*activation || m.Peak > 4*parameters+12*activation {
		t.Errorf("%v at the peak, want parameters, momenta, gradients and activations: %+v", m.Peak, m)
	}
	i := slices.IndexFunc(m.Sites, func(s profile.Site) bool { return s.Operator == "tanh" && s.Module == "Tanh" })
	if i < 0 || m.Sites[i].Tensors != 4 || m.Sites[i].Peak < 3*activation || m.Sites[i].Live != 0 || !strings.HasPrefix(m.Sites[i].Site, "memory.py:") {
		t.Errorf("want four tensors of tanh, three or four of them at the peak, in %+v", m.Sites)
	}
	var atPeak float64
	for _, s := range m.Sites {
		atPeak += s.Peak
	}
	if atPeak != m.Peak {
		t.Errorf("the call sites have %v at the peak of %v", atPeak, m.Peak)
	}
	if a := p.Memory.Allocators; len(a) != 1 || a[0].Name != "malloc" || !(a[0].Used > 0) {
		t.Errorf("got the allocators %+v", a)
	}
	if w := p.Memory.Watched; w.Passes != 3 || w.Slower == nil || p.Passes != 9 {
		t.Errorf("%+v were watched, %d passes count of 12", w, p.Passes)
	}
	if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte(`"ph":"C"`)) && !bytes.Contains(text, []byte(`"ph": "C"`)) {
		t.Errorf("%v: the trace has no memory over time", err)
	}
}

// What the watch says of storages whose lives are known, the bounds of its memory, and the memory of
// layers that are measured by themselves.
func TestMemoryOfKnownTensors(t *testing.T) { trainEqual(t, 1, "memory.py", 7) }

func TestRanksEndWhenOneIsLost(t *testing.T) {
	beside(t)
	lines, status := train(t, "2", "lost.py")
	if text := strings.Join(lines, "\n"); status != 137 || !strings.Contains(text, "rank 1 failed first, with status 137") {
		t.Errorf("status %d,\n%s\nwant that of rank 1, which was killed", status, text)
	}
}

// Pipelines of both schedules, with and without recomputation, come to the parameters and the loss
// of one process, within 1e-6.
func TestPipelineEqualsOneProcess(t *testing.T) {
	beside(t)
	trainEqual(t, 3, "pipeline.py", 12)
}

// The operators of a transformer are divided over four ranks, alone and together with stages and
// replicas, by the strategies of the planner and by random ones: losses and parameters are those of
// one process, within 1e-6.
func TestShardingsEqualOneProcess(t *testing.T) {
	beside(t)
	trainEqual(t, 4, "shardings.py", 12)
}
