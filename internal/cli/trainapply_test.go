package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
)

// applyPlan returns the job of a file that runs by its plan, as it is submitted.
func applyPlan(t *testing.T, file string) (s client.JobSpec, p jobPlan, err error) {
	t.Helper()
	j, err := parseJobFile([]byte(file + "\nprogram: [python3, train.py]"))
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err = j.spec(t.TempDir()); err != nil {
		return s, p, err
	}
	env := &Env{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer)}
	if err = j.applyPlan(t.Context(), env, "job.yaml", &s); err == nil {
		if err := json.Unmarshal([]byte(s.Env[planVariable]), &p); err != nil {
			t.Fatal(err)
		}
	}
	return s, p, err
}

// A job that runs by its plan has the degrees that `outboard plan train` prints for it.
func TestJobRunsByItsPlan(t *testing.T) {
	for _, degrees := range []string{"", ", stages: 2", ", replicas: 2", ", stages: 3, replicas: 1"} {
		file := "ranks: 4\nenv: {A: b}\nparallel: {plan: true" + degrees + "}" + planFile
		s, p, err := applyPlan(t, file)
		if err != nil {
			t.Fatalf("%s: %v", degrees, err)
		}
		status, out, errs := planTrain(t, file, "-o", "json")
		var printed trainPlan
		if err := json.Unmarshal([]byte(out), &printed); status != 0 || err != nil {
			t.Fatalf("%s: status %d, %v: %s", degrees, status, err, errs)
		}
		want := printed.Plans[1].Plan
		var cuts []int
		for _, stage := range want.Stages[1:] {
			cuts = append(cuts, stage.First)
		}
		if !slices.Equal(p.Cuts, cuts) || p.Replicas != want.Replicas || p.MicroBatches != want.Steps || p.Tensor != 1 || p.Layers != 3 || p.Batch != 32 {
			t.Errorf("%s: the job runs by %+v, the plan is %+v", degrees, p, want)
		}
		if ranks := len(want.Stages) * want.Replicas; s.Ranks != ranks || ranks > 4 || s.Env["A"] != "b" || !strings.Contains(s.Plan, fmt.Sprintf("%d micro-batch(es)", p.MicroBatches)) {
			t.Errorf("%s: %d ranks of %d, %v: %q", degrees, s.Ranks, ranks, s.Env, s.Plan)
		}
	}
}

// Cuts are between layers of the program, also if the planner has merged them.
func TestPlannedCutsOfMergedLayers(t *testing.T) {
	layers := strings.Repeat("    - {name: l, parameters: 1.0e6, output: 1.0e3, stored: 1.0e3, forward: 0.01, backward: 0.02}\n", 40)
	_, p, err := applyPlan(t, "parallel: {plan: true, stages: 2, replicas: 1}\nplan:\n  batch: 32\n  layers:\n"+layers+
		"  devices:\n    - {name: cpu, speed: 1, memory: 1.0e9, bandwidth: 1.0e9}\n")
	if err != nil || p.Layers != 40 || len(p.Cuts) != 1 || p.Cuts[0] < 18 || p.Cuts[0] > 22 {
		t.Errorf("%v: %+v, want a cut in the middle of 40 equal layers", err, p)
	}
}

// The strategies of divided operators are part of the plan, and so is the number of threads with
// which the layers were measured.
func TestPlannedStrategiesAndThreads(t *testing.T) {
	const text = `{"version":1,"threads":3,"layers":[{"name":"first","parameters":8,"output":256,"stored":8,"forward":1e-6,"backward":1e-6},{"name":"block","operators":[
{"name":"up","kind":"linear","output":[256],"parameters":4e8,"forward":0.4,"backward":0.8},
{"name":"relu","kind":"elementwise","output":[256],"forward":0.01,"backward":0.01},
{"name":"down","kind":"linear","output":[64],"parameters":4e8,"forward":0.4,"backward":0.8}]}]}`
	path := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file := "profile: " + path + `
parallel: {plan: true, stages: 1, tensor: 2}
plan:
  batch: 4
  devices:
    - {name: gpu, speed: 1, memory: 1.0e9, bandwidth: 1.0e8, count: 2, node: 2, nodeBandwidth: 1.0e10}
`
	s, p, err := applyPlan(t, file)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Strategies) != 2 || p.Strategies[0] != nil || !slices.Equal(p.Strategies[1], []string{"column", "column", "row"}) || p.Neighbours != "replicas" {
		t.Errorf("got %+v", p)
	}
	if s.Threads != "3" || !strings.Contains(s.Plan, "threads 3") || s.Ranks != 2 {
		t.Errorf("%d ranks with %q threads: %s", s.Ranks, s.Threads, s.Plan)
	}
	if s, _, err := applyPlan(t, "threads: auto\n"+file); err != nil || s.Threads != "auto" {
		t.Errorf("%v: %q threads, the file has auto", err, s.Threads)
	}
}

func TestPlansThatNoJobRunsBy(t *testing.T) {
	tight := strings.ReplaceAll(strings.ReplaceAll(planFile, "1.0e9, b", "10, b"), "4.0e9", "10")
	for want, file := range map[string]string{
		`needs "plan:"`:         "ranks: 2\nparallel: {plan: true}",
		"minRanks":              "ranks: 2\nminRanks: 1\nparallel: {plan: true}" + planFile,
		"must not be negative":  "ranks: 2\nparallel: {plan: true, stages: -1}" + planFile,
		"stages: 4 of 3 layers": "parallel: {plan: true, stages: 4}" + planFile,
		"no other degrees fit":  "ranks: 2\nparallel: {plan: true}" + tight,
	} {
		if s, _, err := applyPlan(t, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v with %+v, want an error with %q", err, s, want)
		}
	}
}

// A mistake in a job's file is reported with its line, and without types of this program.
func TestMistakesInJobFiles(t *testing.T) {
	for text, want := range map[string]string{
		"program: [a]\nnme: digits\n": "line 2: there is no setting nme",
		"plan: {layerz: []}\n":        "line 1: there is no setting layerz",
		"ranks: x\n":                  "line 1: x: want a whole number",
		"ranks: 1\nprogram: train\n":  "line 2: train: want a list of texts, such as [python3, train.py]",
		"env: [A=1]\n":                `line 1: want texts by name, such as {LR: "0.1"}`,
		"plan: {devices: 2}\n":        "line 1: 2: want a list",
		"ranks: 1\n---\nranks: 2\n":   "it has more than one document: want one job in a file",
		"":                            "it is empty",
	} {
		if _, err := parseJobFile([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Values that no job can have are reported with the line of their member.
func TestValuesOfJobFiles(t *testing.T) {
	for text, want := range map[string]string{
		"ranks: -2\n":                              "line 1: ranks: -2: want no negative number",
		"program: [a]\nranks: 1025\n":              "line 2: ranks: 1025: want 1024 at most",
		"ranks: 2\nminRanks: 5\n":                  "line 2: minRanks: 5: the job has only 2 ranks",
		"ranks: 3\nranksPerDevice: 2\n":            "line 2: ranksPerDevice: 2: the job's 3 ranks are no multiple",
		"ranks: 2\nrestarts: -1\n":                 "line 2: restarts: -1",
		"ranks: 2\ngradients: topk=2\n":            "line 2: gradients: ",
		"ranks: 2\n\noffload: device=much\n":       "line 3: offload: ",
		"threads: many\n":                          "line 1: threads: ",
		"stageLimit: soon\n":                       "line 1: stageLimit: ",
		"program: [a]\ndevice: cpu\n":              "line 2: device: ",
		"program: [a]\nmemory: 3XB\n":              "line 2: memory: ",
		"program: [a]\nparallel: {stages: 3}\n":    "line 2: parallel: ",
		"ranks: 2\nranksPerDevice: -1\nsteps: 3\n": "line 2: ranksPerDevice: ",
	} {
		j, err := parseJobFile([]byte(text))
		if err == nil {
			_, _, err = j.spec(t.TempDir())
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s...", text, err, want)
		}
	}
}
