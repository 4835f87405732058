package job

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

func TestProgressOfLines(t *testing.T) {
	var r progressReader
	at := time.Unix(0, 0)
	for _, text := range []string{"loading", "step 10/100 loss 2.5 samples 64", "Step: 20 of 100, loss=0.5, samples=64"} {
		r.read(text, at)
		at = at.Add(5 * time.Second)
	}
	// 10 steps in 5 s, of 64 samples each; 80 are left.
	want := client.JobProgress{Step: 20, Steps: 100, Loss: 0.5, Samples: 128, Left: 40 * time.Second}
	if r.last != want {
		t.Errorf("got %+v, want %+v", r.last, want)
	}
	if r.read("steps are fun", at) {
		t.Error("a line without a step is progress")
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	for want, s := range map[string]client.JobSpec{
		"0 ranks":         {Args: []string{"x"}},
		"no program":      {Ranks: 1},
		"no multiples":    {Ranks: 3, PerDevice: 2, Args: []string{"x"}},
		"at least 5":      {Ranks: 4, MinRanks: 5, Args: []string{"x"}},
		"is no variable":  {Ranks: 1, Args: []string{"x"}, Env: map[string]string{"A=B": ""}},
		"streams no data": {Ranks: 1, Args: []string{"x"}, Stream: true},
		"must not be neg": {Ranks: 1, Args: []string{"x"}, Restarts: -1},
	} {
		if err := check(&s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// The first failure is shown that is no consequence of another one, whichever is heard first.
func TestFirstFailureIsTheCause(t *testing.T) {
	east, west := &nodeRun{node: "east"}, &nodeRun{node: "west"}
	consequence := attemptEvent{from: east, exited: &exited{Rank: 0, Status: 1, AfterLoss: true}}
	cause := attemptEvent{from: west, exited: &exited{Rank: 3, Status: 7}}
	killed := attemptEvent{from: west, exited: &exited{Rank: 5, Status: 137, Killed: true, AfterLoss: true}}
	lost := attemptEvent{from: west, err: fmt.Errorf("silent")}
	for name, c := range map[string]struct {
		events []attemptEvent
		want   string
	}{
		"cause first":       {[]attemptEvent{cause, consequence}, "rank 3"},
		"consequence first": {[]attemptEvent{consequence, cause}, "rank 3"},
		"a killed rank":     {[]attemptEvent{consequence, killed}, "rank 5"},
		"a lost node":       {[]attemptEvent{consequence, lost}, "lost"},
	} {
		o := &outcome{left: map[*nodeRun]bool{east: true, west: true}}
		for _, e := range c.events {
			o.add(e)
		}
		got := fmt.Sprint(o.err())
		if f, ok := errors.AsType[*rankError](o.err()); ok {
			got = fmt.Sprint("rank ", f.rank)
		}
		if !o.over() || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestFolderTravels(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"train.py": "print(1)", "lib/a.py": "x", ".git/config": "secret", "__pycache__/a.pyc": "x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"copy.py": "lib/a.py", "out": outside, "nowhere": "none", "folder": "lib", "self": "self"} {
		if err := os.Symlink(target, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := Pack(from)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Pack(from)
	if err != nil || !bytes.Equal(archive, again) {
		t.Errorf("the archive of the same files differs (%v)", err)
	}
	if err := unpack(archive, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"train.py": true, "lib/a.py": true, ".git/config": false, "__pycache__/a.pyc": false,
		"copy.py": true, "out": false, "nowhere": false, "folder": false, "self": false,
	} {
		if _, err := os.Stat(filepath.Join(to, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}

// hostileArchive has one entry.
func hostileArchive(h tar.Header, text string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h.Mode, h.Size = 0o644, int64(len(text))
	_ = w.WriteHeader(&h)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

func TestHostileArchives(t *testing.T) {
	for name, archive := range map[string][]byte{
		"out of the folder": hostileArchive(tar.Header{Name: "../escaped", Typeflag: tar.TypeReg}, "x"),
		"absolute":          hostileArchive(tar.Header{Name: "/tmp/escaped", Typeflag: tar.TypeReg}, "x"),
		"a link":            hostileArchive(tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}, ""),
		"cut short":         hostileArchive(tar.Header{Name: "a", Typeflag: tar.TypeReg}, "xyz")[:514],
	} {
		if err := unpack(archive, t.TempDir()); err == nil {
			t.Errorf("%s: it was unpacked", name)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range []message{
		{Start: &start{World: 2, Count: 1, PerDevice: 1, Nodes: []outboard.NodeID{"a", "b"}, Claims: [][]byte{{1}}, Args: []string{"x"}}},
		{Line: &line{Rank: 1, Text: "x"}},
		{Exited: &exited{Rank: -1}},
		{Stop: &stop{}},
	} {
		text, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decodeMessage(text)
		if err == nil && m.Start != nil && (m.Start.Count > MaxRanks || m.Start.Node >= len(m.Start.Nodes) || len(m.Start.Args) == 0) {
			t.Errorf("accepted %+v", m.Start)
		}
	})
}

func FuzzPurpose(f *testing.F) {
	f.Add([]byte(`{"job":"job-abc","attempt":1,"from":2,"for":"group g"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := decodePurpose(text); err == nil && (!validID(p.Job) || p.Attempt < 1 || p.From < 0) {
			t.Errorf("accepted %+v", p)
		}
	})
}

func FuzzJob(f *testing.F) {
	f.Add([]byte(`{"id":"job-abc","node":"east","spec":{"ranks":1,"args":["x"]},"state":"running"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if j, err := decodeJob(text); err == nil && !validID(j.ID) {
			t.Errorf("accepted %q", j.ID)
		}
	})
}

// countedChunks counts how many goroutines write at once.
type countedChunks struct {
	now, most atomic.Int32
}

func (c *countedChunks) Has(context.Context, string) (bool, error) { return false, nil }

func (c *countedChunks) Put(context.Context, string, []byte) error {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	for range 100 {
		runtime.Gosched()
	}
	c.now.Add(-1)
	return nil
}

func (c *countedChunks) Get(context.Context, string) ([]byte, error) { return nil, os.ErrNotExist }

// However many checkpoints the ranks of a job save at once, the node reads one at a time.
func TestCheckpointsAreReadOneAtATime(t *testing.T) {
	var chunks countedChunks
	r := &run{host: &Host{opts: HostOptions{Chunks: &chunks}}}
	var saving sync.WaitGroup
	for range 8 {
		f, err := os.Create(filepath.Join(t.TempDir(), "state"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.WriteString("state"); err != nil {
			t.Fatal(err)
		}
		saving.Go(func() {
			if _, err := r.keepFile(t.Context(), checkpointFile, f); err != nil {
				t.Error(err)
			}
		})
	}
	saving.Wait()
	if n := chunks.most.Load(); n != 1 {
		t.Errorf("%d were read at once", n)
	}
}
