package cli

import (
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
}

// apply has the ranks of a job find the degrees in their environment, where
// outboard.torch.pipeline reads them.
func (d *parallelDegrees) apply(s *client.JobSpec) error {
	if d == nil {
		return nil
	}
	if d.Stages < 0 || d.Replicas < 0 || d.Tensor < 0 || max(d.Stages, d.Replicas, d.Tensor) > s.Ranks {
		return usage("parallel: stages, replicas and tensor must be from 0 to the %d ranks", s.Ranks)
	}
	replicas, tensor := max(d.Replicas, 1), max(d.Tensor, 1)
	if s.Ranks%(replicas*tensor) != 0 || d.Stages > 0 && d.Stages*replicas*tensor != s.Ranks {
		return usage("parallel: %d stages of %d replicas of %d ranks are not the job's %d ranks: change one of them, or leave stages out",
			max(d.Stages, 1), replicas, tensor, s.Ranks)
	}
	env := maps.Clone(s.Env)
	if env == nil {
		env = make(map[string]string)
	}
	env["OUTBOARD_REPLICAS"], env["OUTBOARD_TENSOR"] = strconv.Itoa(replicas), strconv.Itoa(tensor)
	s.Env = env
	return nil
}
