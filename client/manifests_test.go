package client_test

import (
	"slices"
	"testing"

	"github.com/outboard-run/outboard/client"
)

// What a job needs to continue is not collected: the checkpoint with which repeated steps began, too.
func TestManifests(t *testing.T) {
	last := &client.JobCheckpoint{Digest: "last"}
	for name, c := range map[string]struct {
		job  client.Job
		want []string
	}{
		"new":              {client.Job{}, nil},
		"checkpoint":       {client.Job{Checkpoint: last}, []string{"last"}},
		"no states yet":    {client.Job{Stages: &client.JobStages{}}, nil},
		"states":           {client.Job{Checkpoint: last, Stages: &client.JobStages{States: "states", Checkpoint: "first"}}, []string{"last", "states", "first"}},
		"later checkpoint": {client.Job{Checkpoint: last, Stages: &client.JobStages{Checkpoint: "first"}}, []string{"last", "first"}},
	} {
		if got := c.job.Manifests(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
