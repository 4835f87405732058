package ranks

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// The server's decision replaces what the rank has measured, and is described once for people; what
// is malformed or too large is refused.
func TestDecide(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ranks.sock")
	decided := make(chan Decision, 10)
	s, err := Serve(path, Options{Decided: func(d Decision) { decided <- d }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := dial(t, path)
	ask := func(subject, measured string, bytes, rank int) error {
		copy(r.memory, measured)
		return r.request("decide", map[string]any{"subject": subject, "rank": rank, "bytes": bytes}, r.file)
	}
	const measured = `{"limits":[10,100,0],"write":[0,1e6,0],"read":[0,1e6,0],"sizes":[8,8],"events":[0,1,1,0],"times":[0,1,2,3]}`
	if err := ask(SubjectMemory, measured, len(measured), 3); err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Tiers string `json:"tiers"`
	}
	if err := json.NewDecoder(strings.NewReader(string(r.memory))).Decode(&plan); err != nil || plan.Tiers != "hd" {
		t.Errorf("%+v, %v: %.200q", plan, err, r.memory)
	}
	if d := <-decided; d.Rank != 3 || d.Subject != SubjectMemory || !strings.Contains(d.Text, "1 on the host") {
		t.Errorf("got %+v", d)
	}
	const state = `{"most":2}`
	if err := ask(SubjectThreads, state, len(state), 0); err != nil {
		t.Error(err)
	}
	<-decided
	for name, c := range map[string]struct {
		subject, measured string
		bytes, rank       int
	}{
		"no JSON":         {SubjectMemory, "{", 1, 0},
		"beyond its file": {SubjectMemory, measured, memorySize + 1, 0},
		"negative":        {SubjectMemory, measured, -1, 0},
		"a rank":          {SubjectMemory, measured, len(measured), maxRanks},
		"a subject":       {"weather", measured, len(measured), 0},
		"malformed":       {SubjectThreads, `{"most":-1}`, 11, 0},
	} {
		if ask(c.subject, c.measured, c.bytes, c.rank) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := r.request("decide", map[string]any{"subject": SubjectMemory, "bytes": 10}); err == nil {
		t.Error("a request without a file is accepted")
	}
	if len(decided) > 0 {
		t.Errorf("described: %+v", <-decided)
	}
}
