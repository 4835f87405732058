package cli_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// archived returns the files of an archive that a job was submitted with.
func (n *testNode) archived(t *testing.T, digest string) map[string]string {
	t.Helper()
	archive, err := n.store.Read(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = string(content)
		}
	}
}

// With --device the ranks run in the pool: the folder of the script travels with the job, the paths
// of its arguments are relative to that folder, and the command ends as the job does.
func TestTrainInThePool(t *testing.T) {
	n := startNode(t)
	script := writeFile(t, "train.py", "pass\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(script), "settings.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := n.run(t, "", "train", "--ranks", "4", "--ranks-per-device", "2", "--min-ranks", "2", "--restarts", "3", "--memory", "1GiB",
		"--device", "type=gpu", "--job-name", "digits", "--env", "A=1=2", "--env", "OUTBOARD_DATA", "--", "true", script, "--epochs", "3")
	if want := (result{0, "[0] step 1/2 loss 0.5\n", "outboard: job job-1\noutboard: 2 devices of harbour are leased\n[1] warning\uFFFD[2J\n"}); r != want {
		t.Errorf("it printed %+v, want %+v", r, want)
	}
	spec := n.jobs.specs[0]
	if diff := cmp.Diff(map[string]string{"train.py": "pass\n", "settings.json": "{}"}, n.archived(t, spec.Files)); diff != "" {
		t.Errorf("the files of the job (-want +got):\n%s", diff)
	}
	spec.Files = ""
	var gpu outboard.Selector
	if err := gpu.Set("type=gpu"); err != nil {
		t.Fatal(err)
	}
	want := client.JobSpec{
		Name: "digits", Ranks: 4, PerDevice: 2, MinRanks: 2, Restarts: 3, Memory: 1 << 30, Selector: gpu,
		Args: []string{"true", "train.py", "--epochs", "3"}, Env: map[string]string{"A": "1=2", "OUTBOARD_DATA": n.data},
	}
	if spec.Selector.String() != want.Selector.String() {
		t.Errorf("the selector is %v, want %v", spec.Selector, want.Selector)
	}
	spec.Selector, want.Selector = outboard.Selector{}, outboard.Selector{}
	if diff := cmp.Diff(want, spec, cmp.Comparer(func(a, b outboard.Selector) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("the job (-want +got):\n%s", diff)
	}
	if out := n.run(t, "", "train", "--device", "type=gpu", "--detach", "--", "true"); out != (result{0, "job-2\n", ""}) {
		t.Errorf("--detach printed %+v, want the job's ID alone", out)
	}
}

// The folder that travels with a module of the current folder is that folder.
func TestTrainOfAModule(t *testing.T) {
	n := startNode(t)
	t.Chdir(t.TempDir())
	if err := errors.Join(os.MkdirAll("pkg/sub", 0o700), os.WriteFile("pkg/sub/__main__.py", []byte("pass\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	n.run(t, "", "train", "--device", "type=gpu", "--detach", "--", "true", "-m", "pkg.sub", "--flag")
	n.run(t, "", "train", "--device", "type=gpu", "--detach", "--", "true", "-m", "json.tool", "--flag")
	if got := n.archived(t, n.jobs.specs[0].Files); got["pkg/sub/__main__.py"] != "pass\n" {
		t.Errorf("the job has %v", got)
	}
	if s := n.jobs.specs[1]; s.Files != "" {
		t.Error("a job with a module that is not in the folder has files")
	}
}

func TestTrainEndsAsItsJob(t *testing.T) {
	n := startNode(t)
	r := n.run(t, "", "train", "--device", "type=gpu", "--", "false")
	if r.status != 3 || !strings.HasSuffix(r.stderr, "outboard: job job-1: rank 1 exited with the status 3\n") {
		t.Errorf("of a job that failed: %+v", r)
	}
	r = n.run(t, "", "train", "--device", "type=gpu", "--", "sleep")
	if r.status != 1 || !strings.HasSuffix(r.stderr, "outboard: job job-2 is running: `outboard jobs show job-2`\n") {
		t.Errorf("of a job that the node no longer follows: %+v", r)
	}
	n.refuse(t, 11, `there is no dataset "none"`, "train", "--device", "type=gpu", "--dataset", "none", "--", "true")
	n.refuse(t, 2, "--stage-limit 15m,elsewhere needs --device SELECTOR", "train", "--stage-limit", "15m,elsewhere", "--", "true")
	n.refuse(t, 2, "want a time such as 15m, or 15m,elsewhere", "train", "--device", "type=cpu", "--stage-limit", "15m,here", "--", "true")
	n.refuse(t, 2, "--detach needs --device SELECTOR", "train", "--detach", "--", "true")
	n.refuse(t, 2, "--ranks 0: want 1 to 256", "train", "--ranks", "0", "--", "true")
	n.refuse(t, 2, "want a folder", "train", "--device", "type=gpu", "--files", "none", "--", "true")
	n.refuse(t, 2, "name the program to run", "train")
}

// Without --device the ranks run here: each has the environment that torch.distributed reads, each
// line carries the rank, and the first failure ends all and is the command's.
func TestTrainHere(t *testing.T) {
	n := startNode(t)
	r := n.run(t, "", "train", "--ranks", "2", "--", "sh", "-c", `echo "$RANK of $WORLD_SIZE on $MASTER_ADDR"; test -S "$OUTBOARD_RANKS_SOCKET" && test -d "$PYTHONPATH/outboard"`)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	slices.Sort(lines)
	if want := []string{"[0] 0 of 2 on 127.0.0.1", "[1] 1 of 2 on 127.0.0.1"}; r.status != 0 || !slices.Equal(lines, want) {
		t.Errorf("status %d, it printed %q, want %q: %s", r.status, lines, want, r.stderr)
	}
	r = n.run(t, "", "train", "--ranks", "2", "--", "sh", "-c", `[ $RANK = 0 ] && exec sleep 1000; echo lost >&2; exit 7`)
	if r.status != 7 || !strings.HasPrefix(r.stderr, "[1] lost\n") || !strings.Contains(r.stderr, "outboard: ") {
		t.Errorf("of a rank that fails: %+v", r)
	}
	if r = n.run(t, "", "train", "--", "no-such-program"); r.status != 127 {
		t.Errorf("of no program: %+v", r)
	}
}

const jobFile = `name: digits
ranks: 2
device: type=cpu
memory: 64MiB
program: [true, train.py]
files: src
env: {LR: "0.1"}
detach: true
`

func TestTrainFile(t *testing.T) {
	n := startNode(t)
	path := writeFile(t, "job.yaml", jobFile)
	folder := filepath.Join(filepath.Dir(path), "src")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "train.py"), []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := n.run(t, "", "train", path); out != (result{0, "job-1\n", ""}) {
		t.Fatalf("it printed %+v", out)
	}
	spec := n.jobs.specs[0]
	if spec.Name != "digits" || spec.Ranks != 2 || spec.Selector.String() != "type=cpu" || spec.Memory != 64<<20 || spec.Env["LR"] != "0.1" || !slices.Equal(spec.Args, []string{"true", "train.py"}) {
		t.Errorf("the job is %+v", spec)
	}
	if diff := cmp.Diff(map[string]string{"train.py": "pass\n"}, n.archived(t, spec.Files)); diff != "" {
		t.Errorf("the files of the job (-want +got):\n%s", diff)
	}
	n.refuse(t, 2, "add `program: [python3, train.py]`", "train", writeFile(t, "job.yaml", "ranks: 2\n"))
	n.refuse(t, 2, "line 2", "train", writeFile(t, "job.yaml", "ranks: 2\nrank: 3\n"))
	n.refuse(t, 2, "device: ", "train", writeFile(t, "job.yaml", "program: [x]\ndevice: colour=red\n"))
	n.refuse(t, 2, "memory: ", "train", writeFile(t, "job.yaml", "program: [x]\nmemory: much\n"))
	n.refuse(t, 2, "it is empty", "train", writeFile(t, "job.yml", ""))
	n.refuse(t, 2, "flags stand before the job's file", "train", path, "--ranks", "3")
	n.refuse(t, 2, "--ranks: set it in "+path, "train", "--ranks", "3", path)
	n.refuse(t, 2, "--detach: set it in "+path, "train", "--detach", path)
	n.refuse(t, 2, "line 2: 2.5: want a whole number", "train", writeFile(t, "job.yaml", "program: [x]\nranks: 2.5\n"))
	n.refuse(t, 2, "line 3: 0.5: want a whole number", "train", writeFile(t, "job.yaml", "program: [x]\nplan:\n  batch: 0.5\n"))
	n.refuse(t, 2, "line 2: files: ", "train", writeFile(t, "job.yaml", "program: [x]\nfiles: job.yaml\n"))
	n.refuse(t, 11, "no such file", "train", filepath.Join(t.TempDir(), "none.yaml"))
}

// A folder is sent with a job by a link to it, and by its absolute path; a script that is a link out of
// its folder, which would not be sent, is refused.
func TestTrainThroughLinks(t *testing.T) {
	n := startNode(t)
	folder := filepath.Dir(writeFile(t, "train.py", "pass\n"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "linked.py")
	if err := os.Symlink(filepath.Join(folder, "train.py"), elsewhere); err != nil {
		t.Fatal(err)
	}
	n.succeed(t, "train", "--device", "type=gpu", "--detach", "--", "true", filepath.Join(link, "train.py"))
	n.succeed(t, "train", "--device", "type=gpu", "--detach", "--files", link, "--", "true", "train.py")
	n.succeed(t, "train", writeFile(t, "job.yaml", "program: [\"true\"]\ndetach: true\nfiles: "+folder+"\n"))
	for i, spec := range n.jobs.specs {
		if diff := cmp.Diff(map[string]string{"train.py": "pass\n"}, n.archived(t, spec.Files)); diff != "" {
			t.Errorf("the files of job %d (-want +got):\n%s", i, diff)
		}
	}
	n.refuse(t, 2, "linked.py: it is a link out of ", "train", "--device", "type=gpu", "--", "true", elsewhere)
}

func TestJobs(t *testing.T) {
	n := startNode(t)
	n.run(t, "", "train", "--ranks", "2", "--device", "type=gpu", "--job-name", "digits", "--", "false")
	n.succeed(t, "train", "--device", "type=gpu", "--detach", "--", "true")
	j := &n.jobs.jobs[0]
	j.Prog = client.JobProgress{Step: 12, Steps: 100, Loss: 0.25, Samples: 64, Left: time.Minute}
	j.Ranks = []client.JobRank{{First: 0, Count: 1, Node: "harbour", Device: "harbour/opencl/0"}, {First: 1, Count: 2, Node: "dinghy", Device: "dinghy/opencl/0"}}
	j.Devices = []client.JobDeviceUse{{Node: "harbour", Devices: 2, Seconds: 180}}
	j.Checkpoint, j.Why = &client.JobCheckpoint{Step: 10, Size: 1 << 20, Saved: fakePushed}, []string{"ring: 2 nodes"}
	contains(t, n.succeed(t, "jobs"), "\nJOB NAME NODE STATE RANKS TIME PROGRESS REASON\n",
		"\njob-1 digits harbour failed 2 1m30s step 12/100, loss 0.25, 64 samples/s rank 1 exited with the status 3\n", "\njob-2 harbour running 1 ")
	out := n.succeed(t, "jobs", "show", "job-1")
	contains(t, out, "\nJOB job-1\n", "\ndevices type=gpu\n", "\nranks 2 of 2, attempt 1\n", "\nrank 0 harbour, device harbour/opencl/0\n",
		"\nranks 1-2 dinghy, device dinghy/opencl/0\n", "\nused 2 device(s) of harbour, 180 device-seconds\n", "\ncheckpoint of step 10, 1MiB, saved ")
	if strings.Contains(out, "ring: 2 nodes") {
		t.Errorf("without --why it shows what was decided:\n%s", out)
	}
	contains(t, n.succeed(t, "jobs", "show", "job-1", "--why"), "\nwhy ring: 2 nodes\n")
	contains(t, n.succeed(t, "job", "job-1", "--why"), "\nwhy ring: 2 nodes\n")
	contains(t, n.succeed(t, "jobs", "show", "job-1", "-o", "json"), `"ring: 2 nodes"`)
	j.State = client.JobRunning
	contains(t, n.succeed(t, "jobs"), ", 1m0s left ")

	n.succeed(t, "jobs", "cancel", "job-2")
	contains(t, n.succeed(t, "jobs"), "\njob-2 harbour canceled ")
	n.succeed(t, "jobs", "resume", "job-2")
	contains(t, n.succeed(t, "jobs"), "\njob-2 harbour running ")
	n.succeed(t, "stop", "job-2")
	contains(t, n.succeed(t, "jobs"), "\njob-2 harbour canceled ")
	n.succeed(t, "resume", "job-2")
	contains(t, n.succeed(t, "jobs"), "\njob-2 harbour running ")
	for _, verb := range []string{"show", "cancel", "resume"} {
		n.refuse(t, 11, `there is no job "job-9"`, "jobs", verb, "job-9")
		if got := n.completions(t, "jobs", verb, ""); !slices.Equal(got, []string{"job-1", "job-2"}) {
			t.Errorf("jobs %s is completed by %q", verb, got)
		}
	}
}

func TestJobLogs(t *testing.T) {
	n := startNode(t)
	n.succeed(t, "train", "--device", "type=gpu", "--detach", "--", "true")
	r := n.run(t, "", "logs", "job-1", "-n", "7", "-f")
	if want := (result{0, "[0] step 1/2 loss 0.5\n", "outboard: 2 devices of harbour are leased\n[1] warning\uFFFD[2J\n"}); r != want {
		t.Errorf("it printed %+v, want %+v", r, want)
	}
	if want := "follow=true&lines=7"; n.jobs.logs[0] != want {
		t.Errorf("the node was asked for %s, want %s", n.jobs.logs[0], want)
	}
	decoder := json.NewDecoder(strings.NewReader(n.succeed(t, "logs", "job-1", "-o", "json")))
	for i, want := range jobLines() {
		var got client.JobLine
		if err := decoder.Decode(&got); err != nil || got != want {
			t.Errorf("line %d is %+v, want %+v: %v", i, got, want, err)
		}
	}
	// An app may have such a name too.
	contains(t, n.succeed(t, "logs", "job-9"), " hello")
	n.refuse(t, 11, `there is no job "job-none"`, "logs", "job-none")
}

// A dataset that is pulled is the folder that was pushed, and its chunks are copied once.
func TestDatasets(t *testing.T) {
	n := startNode(t)
	folder := t.TempDir()
	want := map[string]string{"a.txt": "first", "sub/b.txt": "second"}
	for name, content := range want {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	contains(t, n.succeed(t, "datasets", "push", folder, "digits"), "\ndataset digits: 2 files, 11B\n")
	puts := n.puts
	n.succeed(t, "data", "push", folder, "digits")
	if n.puts > puts+1 { // the manifest may be
		t.Errorf("pushing the same folder again copied %d chunks", n.puts-puts-1)
	}
	contains(t, n.succeed(t, "datasets"), "\nDATASET NODE FILES SIZE CREATED DIGEST\n", "\ndigits harbour 2 11B ", " sha256:")
	contains(t, n.succeed(t, "datasets", "-o", "json"), `"name": "digits"`)
	copied := filepath.Join(t.TempDir(), "copy")
	contains(t, n.succeed(t, "datasets", "pull", "digits", copied), "\ndataset digits: ")
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(copied, name)); err != nil || string(got) != content {
			t.Errorf("%s is %q, want %q: %v", name, got, content, err)
		}
	}
	t.Chdir(t.TempDir())
	n.succeed(t, "data", "get", "digits")
	if got, err := os.ReadFile(filepath.Join("digits", "a.txt")); err != nil || string(got) != "first" {
		t.Errorf("without the name of a folder: %q, %v", got, err)
	}
	n.refuse(t, 2, "name a dataset", "data", "get")
	for _, verb := range []string{"pull", "remove"} {
		if got := n.completions(t, "datasets", verb, "d"); !slices.Equal(got, []string{"digits"}) {
			t.Errorf("datasets %s is completed by %q", verb, got)
		}
	}
	n.jobs.corrupt = true
	bad := filepath.Join(t.TempDir(), "bad")
	n.refuse(t, 10, "the node sent other content", "datasets", "pull", "digits", bad)
	if _, err := os.Stat(bad); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder with content that could not be verified is there: %v", err)
	}
	contains(t, n.succeed(t, "datasets", "remove", "digits"), "\ndataset digits was removed\n")
	n.refuse(t, 11, `there is no dataset "digits"`, "datasets", "remove", "digits")
	n.refuse(t, 11, `there is no dataset "digits"`, "datasets", "pull", "digits", bad)
	n.refuse(t, 2, "want a folder", "datasets", "push", filepath.Join(folder, "a.txt"), "digits")
	n.refuse(t, 2, "name a folder and the dataset", "datasets", "push", folder)
}
