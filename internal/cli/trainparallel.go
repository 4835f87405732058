package cli

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/outboard-run/outboard/client"
)

// parallelDegrees are the degrees of parallelism that a job's file asks for. Their product is the
// number of ranks; 0 is 1, and for stages as many as the ranks leave.
type parallelDegrees struct {
	Stages   int `yaml:"stages"`
	Replicas int `yaml:"replicas"`
	Tensor   int `yaml:"tensor"`
	// Plan has the job run by its plan: degrees that are 0 are the plan's, and the number of ranks
	// follows from it.
	Plan bool `yaml:"plan"`
}

// planned reports whether a job runs by its plan.
func (d *parallelDegrees) planned() bool { return d != nil && d.Plan }

func (d *parallelDegrees) String() string {
	return fmt.Sprintf("%d stage(s), %d replica(s), tensor %d", d.Stages, d.Replicas, d.Tensor)
}

// resolve returns the degrees for a number of ranks, with none left at 0.
func (d *parallelDegrees) resolve(ranks int) (parallelDegrees, error) {
	if d.Stages < 0 || d.Replicas < 0 || d.Tensor < 0 || max(d.Stages, d.Replicas, d.Tensor) > ranks {
		return *d, usage("parallel: stages, replicas and tensor must be from 0 to the %d ranks", ranks)
	}
	all := parallelDegrees{Stages: d.Stages, Replicas: max(d.Replicas, 1), Tensor: max(d.Tensor, 1)}
	each := all.Replicas * all.Tensor
	if all.Stages == 0 {
		all.Stages = max(ranks/each, 1)
	}
	if all.Stages*each != ranks {
		return *d, usage("parallel: %d stages of %d replicas of %d ranks are not the job's %d ranks: change one of them, or leave stages out",
			all.Stages, all.Replicas, all.Tensor, ranks)
	}
	return all, nil
}

// apply has the ranks of a job find the degrees in their environment, where
// outboard.torch.pipeline reads them.
func (d *parallelDegrees) apply(s *client.JobSpec) error {
	if d == nil || d.Plan {
		return nil
	}
	all, err := d.resolve(s.Ranks)
	if err != nil {
		return err
	}
	env := maps.Clone(s.Env)
	if env == nil {
		env = make(map[string]string)
	}
	env["OUTBOARD_REPLICAS"], env["OUTBOARD_TENSOR"] = strconv.Itoa(all.Replicas), strconv.Itoa(all.Tensor)
	s.Env = env
	return nil
}
