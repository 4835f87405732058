package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const planFile = `
steps: 1000
plan:
  batch: 32
  optimizer: 3
  layers:
    - {name: embed, parameters: 4.0e6, output: 1.0e5, stored: 2.0e5, forward: 0.001, backward: 0.002}
    - {name: block, parameters: 8.0e6, output: 1.0e5, stored: 4.0e5, forward: 0.004, backward: 0.008}
    - {name: head, parameters: 4.0e6, output: 1.0e3, stored: 2.0e5, forward: 0.001, backward: 0.002}
  devices:
    - {name: small, speed: 1, memory: 1.0e9, bandwidth: 1.0e8, price: 0.001, count: 8}
    - {name: large, speed: 3, memory: 4.0e9, bandwidth: 1.0e9, price: 0.005, count: 2}
`

func planTrain(t *testing.T, file string, flags ...string) (status int, stdout, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	env := &Env{Stdout: &out, Stderr: &errs}
	status = env.Run(t.Context(), append([]string{"plan", "train", path, "--data", t.TempDir()}, flags...))
	return status, out.String(), errs.String()
}

// The best plan is no worse than those that people choose by hand, and a deadline costs no more
// than what is fastest.
func TestPlanTrain(t *testing.T) {
	read := func(flags ...string) trainPlan {
		status, out, errs := planTrain(t, planFile, append(flags, "-o", "json")...)
		var p trainPlan
		if err := json.Unmarshal([]byte(out), &p); status != 0 || err != nil {
			t.Fatalf("status %d: %s%v", status, errs, err)
		}
		return p
	}
	fastest := read()
	for _, l := range fastest.Plans[1:] {
		if l.Plan != nil && l.Plan.Time < fastest.Plans[0].Plan.Time {
			t.Errorf("%s takes %v, the best plan %v", l.Name, l.Plan.Time, fastest.Plans[0].Plan.Time)
		}
	}
	if bounded := read("--deadline", "10m").Plans[0].Plan; bounded.Cost > fastest.Plans[0].Plan.Cost || bounded.Time > 0.6 {
		t.Errorf("with a deadline a step takes %v and costs %v, the fastest costs %v", bounded.Time, bounded.Cost, fastest.Plans[0].Plan.Cost)
	}
	if _, out, _ := planTrain(t, planFile); !strings.Contains(out, "data-parallel only") || !strings.Contains(out, "STAGE") {
		t.Errorf("the table lacks the alternatives or the stages:\n%s", out)
	}
	slow := strings.ReplaceAll(planFile, "speed: ", "speed: 1.0e-20")
	if _, out, _ := planTrain(t, slow); !strings.Contains(out, "more than 292 years") || strings.Contains(out, "-2562047h") {
		t.Errorf("times that are longer than a duration:\n%s", out)
	}
}

func TestPlanTrainRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		flags []string
		want  string
	}{
		"unknown member": {"stepz: 1", nil, "stepz"},
		"no plan":        {"steps: 1", nil, "nothing to plan"},
		"no steps":       {strings.Replace(planFile, "steps: 1000", "", 1), []string{"--deadline", "1h"}, "steps:"},
		"no room":        {strings.ReplaceAll(strings.ReplaceAll(planFile, "1.0e9, b", "10, b"), "4.0e9", "10"), nil, "no plan fits"},
		"no budget":      {planFile, []string{"--budget", "much"}, "--budget much"},
		"no time":        {planFile, []string{"--deadline", "1s"}, "time and price of the fastest are "},
		"no picture":     {planFile, []string{"--plot", "plan.png"}, ".svg or .html"},
	} {
		if status, out, errs := planTrain(t, c.file, c.flags...); status == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q, %q, want %q", name, status, out, errs, c.want)
		}
	}
}

func FuzzJobFile(f *testing.F) {
	f.Add([]byte(planFile))
	f.Add([]byte("ranks: 2\ndevice: type=cpu\nprogram: [python3, train.py]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := parseJobFile(text)
		if err == nil && j.Plan != nil && len(j.Plan.Layers) < 1000 {
			_ = j.Plan.Check() // It must not panic.
		}
	})
}

// Layers come from a profile, and plans are drawn.
func TestPlanTrainByProfile(t *testing.T) {
	dir := t.TempDir()
	profile, picture := filepath.Join(dir, "profile.json"), filepath.Join(dir, "plan.html")
	text := `{"version":1,"layers":[{"name":"measured","parameters":1e6,"output":1e3,"stored":1e3,"forward":0.01,"backward":0.02}]}`
	if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(planFile, "  layers:")
	_, devices, _ := strings.Cut(rest, "  devices:")
	status, out, errs := planTrain(t, "profile: "+profile+head+"  devices:"+devices, "--plot", picture)
	if status != 0 || !strings.Contains(out, "measured") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if drawn, err := os.ReadFile(picture); err != nil || !bytes.Contains(drawn, []byte("best plans")) {
		t.Errorf("the plot: %v: %.200s", err, drawn)
	}
	if err := os.WriteFile(profile, []byte(text[:60]), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := planTrain(t, "profile: "+profile+head+"  devices:"+devices); status != 2 || !strings.Contains(errs, "profile.json: no profile") {
		t.Errorf("status %d for a truncated profile: %s", status, errs)
	}
}

// The best plan may divide operators; the table then has their strategies, and the plans of single
// kinds of parallelism.
func TestPlanTrainDividesOperators(t *testing.T) {
	file := `
plan:
  batch: 4
  tensor: [1, 2]
  layers:
    - name: block
      operators:
        - {name: up, kind: linear, output: [256], parameters: 4.0e8, forward: 0.4, backward: 0.8}
        - {name: relu, kind: elementwise, output: [256], forward: 0.01, backward: 0.01}
        - {name: down, kind: linear, output: [64], parameters: 4.0e8, forward: 0.4, backward: 0.8}
  devices:
    - {name: gpu, speed: 1, memory: 1.0e9, bandwidth: 1.0e8, count: 2, node: 2, nodeBandwidth: 1.0e10}
`
	status, out, errs := planTrain(t, file)
	for _, want := range []string{"TENSOR", "up column, relu column, down row", "tensor-parallel only", "pipeline only"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Fatalf("status %d, want %q:\n%s%s", status, want, out, errs)
		}
	}
}

// A job's file may ask for degrees of parallelism, whose product is the number of ranks.
func TestParallelDegrees(t *testing.T) {
	spec := func(text string) (map[string]string, error) {
		j, err := parseJobFile([]byte(text + "\nprogram: [python3, train.py]"))
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := j.spec(t.TempDir())
		return s.Env, err
	}
	env, err := spec("ranks: 8\nenv: {A: b}\nparallel: {replicas: 2, tensor: 2}")
	if err != nil || env["OUTBOARD_REPLICAS"] != "2" || env["OUTBOARD_TENSOR"] != "2" || env["A"] != "b" {
		t.Errorf("got %v, %v", env, err)
	}
	for _, wrong := range []string{"{replicas: 3}", "{replicas: 2, tensor: 2, stages: 3}", "{tensor: 9}", "{tensor: -1}"} {
		if env, err := spec("ranks: 8\nparallel: " + wrong); err == nil || !strings.Contains(err.Error(), "parallel: ") {
			t.Errorf("%s: %v, %v, want an error", wrong, env, err)
		}
	}
}

// A job without room for what its file asks for is refused before a node is asked, with the reason
// that `outboard plan train` gives, and with degrees that fit.
func TestTrainChecksThePlan(t *testing.T) {
	const small = "1.0e9, b"
	tight := strings.ReplaceAll(strings.ReplaceAll(planFile, small, "5.0e7, b"), "4.0e9", "5.0e7")
	for name, c := range map[string]struct{ file, want string }{
		"no room":         {"ranks: 2\nparallel: {replicas: 2}" + tight, "what would fit: "},
		"too few ranks":   {"ranks: 1" + tight, "what would fit: "},
		"too many stages": {"ranks: 4\nparallel: {stages: 4}" + planFile, "stages: 4 of 3 layers"},
		"wrong replicas":  {"ranks: 3\nparallel: {replicas: 3}" + planFile, "32 samples are no whole number of micro-batches"},
		"nowhere":         {"ranks: 2" + strings.ReplaceAll(tight, "5.0e7", "10"), "no other degrees fit either"},
		"no layers":       {"ranks: 2\nplan: {}", "layers: there are none"},
	} {
		status, out, errs := runTrainJob(t, c.file)
		if status == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %s%s, want %q", name, status, out, errs, c.want)
		}
	}
	if _, _, errs := runTrainJob(t, "ranks: 2\nparallel: {replicas: 2}"+planFile); !strings.Contains(errs, "the plan has 1 stage(s), 2 replica(s), tensor 1, with") {
		t.Errorf("a job that fits: %s", errs)
	}
	_, _, refused := runTrainJob(t, "ranks: 2\nparallel: {replicas: 2}"+tight)
	status, out, errs := planTrain(t, "ranks: 2\nparallel: {replicas: 2}"+tight, "-o", "json")
	var p trainPlan
	if err := json.Unmarshal([]byte(out), &p); status != 0 || err != nil || len(p.Plans) < 2 {
		t.Fatalf("status %d, %v: %s%s", status, err, out, errs)
	}
	if asked := p.Plans[1]; !strings.HasPrefix(asked.Name, "as asked") || asked.Unknown == "" || !strings.Contains(refused, asked.Unknown) {
		t.Errorf("the plan is %+v, the job is refused by %s", asked, refused)
	}
}

// runTrainJob runs `outboard train` with a job's file, on a machine without a node.
func runTrainJob(t *testing.T, file string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(path, []byte(file+"\nprogram: [/bin/true]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	env := &Env{Stdout: &out, Stderr: &errs, Environ: []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir}}
	status = env.Run(t.Context(), []string{"train", "--data", dir, path})
	return status, out.String(), errs.String()
}
