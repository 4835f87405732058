package outboardtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/outboardtest"
)

// plannedScript trains a pipeline without degrees of its own, and says which it has.
const plannedScript = `
import torch
import torch.distributed as dist

import outboard.torch

dist.init_process_group("outboard")
torch.manual_seed(1)
layers = [torch.nn.Linear(8, 8) for _ in range(4)]
pipeline = outboard.torch.pipeline(layers, loss=torch.nn.functional.mse_loss)
loss = pipeline.step(torch.ones(8, 8), torch.zeros(8, 8))
print("stage", pipeline.rank, "of", pipeline.stages, "replica", pipeline.replica, "of", pipeline.replicas, "has", len(pipeline.module),
      "layers,", pipeline.micro_batches, "micro-batches,", torch.get_num_threads(), "threads", loss > 0, flush=True)
try:
    outboard.torch.pipeline(layers[1:], loss=torch.nn.functional.mse_loss)
except ValueError as e:
    print("others:", "divides 4 layers, and the pipeline has 3" in str(e), flush=True)
`

// plannedJob is a job whose first layer takes as long as the other three together: with two stages
// it is one of them.
const plannedJob = `
device: type=cpu
threads: "1"
program: [/usr/bin/python3, train.py]
parallel: {plan: true, stages: 2, replicas: 1}
plan:
  batch: 8
  microBatches: [2]
  layers:
    - {name: a, parameters: 288, output: 32, stored: 32, forward: 0.03, backward: 0.03}
    - {name: b, parameters: 288, output: 32, stored: 32, forward: 0.01, backward: 0.01}
    - {name: c, parameters: 288, output: 32, stored: 32, forward: 0.01, backward: 0.01}
    - {name: d, parameters: 288, output: 32, stored: 32, forward: 0.01, backward: 0.01}
  devices:
    - {name: cpu, speed: 1, memory: 1.0e9, bandwidth: 1.0e9}
`

// A job whose file has a plan runs with the plan's cuts and micro-batches, and says so.
func TestJobRunsByItsPlan(t *testing.T) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/torch")
	need.Require(t, "python3-torch", err == nil, "install python3-torch")
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy"}}, Jobs: "trusted"})
	dir := t.TempDir()
	file := plannedJob
	if deviceCount(t, p) < 2 {
		file += "ranksPerDevice: 2\n"
	}
	for name, text := range map[string]string{"train.py": plannedScript, "job.yaml": file} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := p.Node("harbour").Command(t.Context(), "train", filepath.Join(dir, "job.yaml")).CombinedOutput()
	text := string(out)
	for _, want := range []string{
		"the job runs by its plan: 2 stage(s), 1 replica(s), tensor 1",
		"stage 0 of 2 replica 0 of 1 has 1 layers, 4 micro-batches, 1 threads True",
		"stage 1 of 2 replica 0 of 1 has 3 layers, 4 micro-batches, 1 threads True",
		"[0] others: True", "[1] others: True",
	} {
		if err != nil || !strings.Contains(text, want) {
			t.Fatalf("%v, want %q:\n%s", err, want, text)
		}
	}
	jobs, err := p.Node("harbour").Client().Jobs(t.Context())
	if err != nil || len(jobs) != 1 || !strings.Contains(strings.Join(jobs[0].Why, "\n"), "plan: 2 stage(s)") {
		t.Errorf("%v: %+v, want the plan among the decisions", err, jobs)
	}
}
