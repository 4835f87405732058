package profile

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const written = `{"version":1,"passes":3,"where":{"seconds":0.5,"forward":0.1,"backward":0.2,"communication":0.3,"loading":0.05},
"layers":[{"name":"0:Linear","parameters":40,"output":8,"stored":8,"forward":0.1,"backward":0.2}],
"memory":{"peak":1000,"parameters":40},"traceEvents":[]}`

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if l := p.Layers[0]; len(p.Layers) != 1 || l.Name != "0:Linear" || l.Parameters != 40 || l.Backward != 0.2 {
		t.Errorf("got %+v", p.Layers)
	}
	if got := p.Where.Other(); got < 0.149 || got > 0.151 {
		t.Errorf("the rest of the pass is %v, want 0.15", got)
	}
}

func TestProfilesThatAreRefused(t *testing.T) {
	for want, text := range map[string]string{
		"no profile":     written[:100],
		"version 2":      strings.Replace(written, `"version":1`, `"version":2`, 1),
		"without layers": `{"version":1}`,
		"forward is -1":  strings.Replace(written, `"forward":0.1,"backward":0.2,"comm`, `"forward":-1,"backward":0.2,"comm`, 1),
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

const withMemory = `{"version":1,"passes":2,"where":{"seconds":0.25},"layers":[{"name":"0:Linear"}],
"memory":{"peak":2000,"parameters":40,
"tensors":{"peak":900,"live":500,"allocations":7,"allocated":1200,"unwatched":0,
 "sites":[{"site":"train.py:3","operator":"addmm","module":"Linear","tensors":2,"bytes":512,"largest":256,"seconds":0.5,"peak":512,"live":0}],
 "lives":[{"allocated":"earlier","freed":"later","tensors":1,"bytes":80,"largest":80,"seconds":null}]},
"allocators":[{"name":"malloc","used":600,"free":400,"top":100,"mapped":64}],
"watched":{"passes":3,"seconds":0.5,"slower":2}},"traceEvents":[{"ph":"C","pid":3,"name":"tensors"}],"unknown":[1]}`

func TestMemory(t *testing.T) {
	p, err := Read(strings.NewReader(withMemory))
	if err != nil {
		t.Fatal(err)
	}
	m := p.Memory
	if s := m.Tensors.Sites[0]; m.Tensors.Peak != 900 || s.Operator != "addmm" || s.Bytes != 512 || s.Seconds == nil || *s.Seconds != 0.5 {
		t.Errorf("got %+v", m.Tensors)
	}
	if l := m.Tensors.Lives[0]; l.Freed != "later" || l.Largest != 80 || l.Seconds != nil {
		t.Errorf("got %+v", l)
	}
	if a := m.Allocators[0]; a.Fragmented() != 300 || a.Fragmentation() != 0.3 || (Allocator{}).Fragmentation() != 0 {
		t.Errorf("%v of %+v are fragmented, %v", a.Fragmented(), a, a.Fragmentation())
	}
	if m.Watched.Passes != 3 || m.Watched.Slower == nil || *m.Watched.Slower != 2 {
		t.Errorf("got %+v", m.Watched)
	}
}

func TestMerge(t *testing.T) {
	text, err := Merge([]Rank{{Rank: 1, Node: "west", Text: []byte(withMemory)}, {Rank: 0, Node: "east", Text: []byte(written)}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Ranks) != 2 || p.Passes != 3 || p.Where.Seconds != 0.5 {
		t.Fatalf("got %+v, want the profile of rank 0 and two summaries", p)
	}
	if first, second := p.Ranks[0], p.Ranks[1]; first.Node != "east" || second.Node != "west" || second.Where.Seconds != 0.25 || second.Memory.Tensors.Peak != 900 {
		t.Errorf("got %+v", p.Ranks)
	}
	var events struct {
		TraceEvents []struct{ PID int } `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &events); err != nil || len(events.TraceEvents) != 1 || events.TraceEvents[0].PID != 3 {
		t.Errorf("%v: the trace has %+v, want the events of rank 1", err, events)
	}
	if _, err := Merge([]Rank{{Rank: 0, Text: []byte(written)}, {Rank: 5, Text: []byte("{")}}); err == nil || !strings.Contains(err.Error(), "rank 5") {
		t.Errorf("%v, want an error with the rank", err)
	}
	if _, err := Merge(nil); err == nil {
		t.Error("no profiles were merged")
	}
}

// A rank may send a file of any kind.
func TestFilesThatAreRefused(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if _, err := ReadRank(read, 0); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
	large, err := os.Create(filepath.Join(t.TempDir(), "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if err := large.Truncate(MaxSize + 1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRank(large, 0); err == nil || !strings.Contains(err.Error(), "at most 64MiB") {
		t.Errorf("a large file: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(written)
	f.Add(`{"version":1,"layers":[{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Read(strings.NewReader(text)); err == nil && (len(p.Layers) == 0 || p.Version != Version) {
			t.Errorf("accepted %+v", p)
		}
	})
}
