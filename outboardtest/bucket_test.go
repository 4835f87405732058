package outboardtest_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/train/object"
	"github.com/outboard-run/outboard/internal/train/object/objecttest"
	"github.com/outboard-run/outboard/outboardtest"
)

// streamScript reads all files of its dataset through the node. In its first attempt it saves a
// state then and waits; later ones print the state that they are given.
const streamScript = `
import hashlib, os, sys, time
from outboard import data
from outboard._ranks import Connection
for name, content in data.stream(data.names()):
    print("file", name, len(content), hashlib.sha256(content).hexdigest(), flush=True)
folder = os.environ.get("OUTBOARD_CHECKPOINT")
if folder:
    print("state", open(folder + "/state.pt").read(), "of", os.environ["WORLD_SIZE"], flush=True)
    sys.exit()
if os.environ["RANK"] == "0":
    fd = os.memfd_create("state")
    os.write(fd, b"of step 7")
    Connection(os.environ["OUTBOARD_RANKS_SOCKET"]).request("checkpoint", file=fd, number=7)
    print("saved", flush=True)
time.sleep(1000)
`

// bucket starts a server of objects and returns it with the URL of its bucket for nodes.
func bucket(t *testing.T) (*objecttest.Server, string) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "")
	s := objecttest.New(object.Credentials{Key: "key", Secret: "secret"})
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, "s3://pool/team?endpoint=" + server.URL
}

// chunksOf returns the paths of the objects that are chunks.
func chunksOf(s *objecttest.Server) []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool { return !strings.HasPrefix(name, "/pool/team/chunks/") })
}

// A dataset that was pushed to one node is in the bucket, from which the nodes of the ranks read it,
// each object once and ahead of the ranks. The job's checkpoint is there too: when the node is lost
// that saved it, fewer ranks go on from it on another one. Gradients travel through it if a job asks.
func TestJobThroughABucket(t *testing.T) {
	_, err := exec.LookPath("python3")
	need.Require(t, "python3", err == nil, "install python3")
	s, url := bucket(t)
	p := outboardtest.Start(t, outboardtest.Options{
		Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}, {Name: "east"}, {Name: "west"}}, Jobs: "trusted", Objects: url,
	})
	folder, want := t.TempDir(), []string{}
	for name, content := range map[string][]byte{"a": []byte("short"), "b/c": bytes.Repeat([]byte("0123456"), 700_000), "empty": nil} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("file %s %d %x", name, len(content), sha256.Sum256(content)))
	}
	if out, err := p.Node("harbour").Command(t.Context(), "datasets", "push", folder, "digits").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dataset := chunksOf(s)
	if len(dataset) != 4 {
		t.Fatalf("the bucket has %q, want three chunks and a manifest", dataset)
	}
	n := deviceCount(t, p)
	sumThroughBucket(t, p, s, n)
	spec := client.JobSpec{Ranks: n, MinRanks: n / 2, Data: "digits", Stream: true, Args: []string{"python3", "-c", streamScript}}
	var stopping sync.WaitGroup
	// A node whose ranks have not read everything when the job begins again reads the rest again.
	outstanding := n*len(want) + 1
	j, lines := submit(t, p.Node("harbour"), spec, func(l client.JobLine) {
		if l.Text != "saved" && !strings.HasPrefix(l.Text, "file ") {
			return
		}
		if outstanding--; outstanding == 0 {
			stopping.Go(p.Node("east").Stop) // It has rank 0.
		}
	})
	stopping.Wait()
	if state := fmt.Sprintf("0 state of step 7 of %d", n/2); j.State != client.JobSucceeded || !slices.Contains(lines, state) {
		t.Fatalf("%s (%s), want %q: %q", j.State, j.Reason, state, lines)
	}
	for _, file := range want {
		if !slices.Contains(lines, "0 "+file) {
			t.Errorf("rank 0 wrote %q, want %q", lines, file)
		}
	}
	for _, name := range dataset {
		if reads := s.Gets(name); reads < 1 || reads > 2 {
			t.Errorf("object %s was read %d times, want once by each of two nodes", name, reads)
		}
	}
	if len(chunksOf(s)) != len(dataset)+2 {
		t.Errorf("the bucket has %q, want the checkpoint and its manifest too", chunksOf(s))
	}
}

// sumThroughBucket runs a job whose gradients travel through the bucket of a pool.
func sumThroughBucket(t *testing.T, p *outboardtest.Pool, s *objecttest.Server, ranks int) {
	t.Helper()
	spec := client.JobSpec{Ranks: ranks, Gradients: "store", Args: []string{"python3", "-c", sumScript}}
	j, lines := submit(t, p.Node("harbour"), spec, nil)
	want := fmt.Sprintf("0 sum %.1f %v", 62.5*float64(ranks), 1023.9375*float64(ranks))
	if j.State != client.JobSucceeded || !slices.Contains(lines, want) {
		t.Errorf("%s (%s): %q, want %q", j.State, j.Reason, lines, want)
	}
	if !slices.ContainsFunc(s.Names(), func(name string) bool { return strings.HasPrefix(name, "/pool/team/sums/"+j.ID) }) {
		t.Errorf("the bucket has %q, want parts of the job's sum", s.Names())
	}
}
