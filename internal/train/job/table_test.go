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
