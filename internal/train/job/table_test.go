package job

import (
	"encoding/json"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// A joined node writes times that can be read and not be written again: no list has them.
func TestTimesOfHostileNodes(t *testing.T) {
	const never = `"2026-01-01T00:00:00+24:00"`
	if j, err := decodeJob([]byte(`{"id":"evil-1","node":"dinghy","created":` + never + `}`)); err == nil {
		t.Errorf("a job: %+v", j)
	}
	m := Manager{sets: map[string]client.Dataset{}}
	for _, set := range []string{`"name":"evil","created":` + never, `"name":"good"`} {
		name := set[len(`"name":"`):][:4]
		_, _ = m.applyDataset("dinghy/"+name, state.Entry{Value: []byte(`{"node":"dinghy",` + set + `}`)})
	}
	if text, err := json.Marshal(m.sets); err != nil || len(m.sets) != 1 {
		t.Errorf("datasets %s, %v", text, err)
	}
}

// A joined node writes a job with the ID of another node's. Each node still has its own job, whichever
// it reads first: a detached one continues when its node starts again.
func TestJobsWithTheIDOfAnother(t *testing.T) {
	for name, order := range map[string][]string{"first": {"evil", "dinghy"}, "last": {"dinghy", "evil"}} {
		m := Manager{opts: Options{Self: "dinghy"}, all: map[string]client.Job{}, view: new(state.Follower)}
		for _, node := range order {
			value := []byte(`{"id":"job-abc","node":"` + node + `"}`)
			if _, err := m.apply(state.Entry{Key: jobsPrefix + node + "/job-abc", Value: value}); err != nil {
				t.Errorf("%s: the job of %s: %v", name, node, err)
			}
		}
		if j, err := m.own("job-abc"); err != nil || j.Node != "dinghy" {
			t.Errorf("%s: got the job of node %q, %v", name, j.Node, err)
		}
		if list := m.List(); len(list) != 2 {
			t.Errorf("%s: jobs %+v", name, list)
		}
		if _, err := m.apply(state.Entry{Key: jobsPrefix + "evil/job-abc", Deleted: true}); err != nil {
			t.Error(err)
		}
		if _, err := m.own("job-abc"); err != nil {
			t.Errorf("%s, then removed: %v", name, err)
		}
	}
}
