package serve

import (
	"testing"

	"github.com/outboard-run/outboard/internal/model/repository"
)

// countedArtifacts counts the questions for a file, which this node has if files is set.
type countedArtifacts struct {
	Artifacts
	files   bool
	queries int
}

func (a *countedArtifacts) Has(string) (bool, error) {
	a.queries++
	return a.files, nil
}

// loneNode has no peers.
type loneNode struct{ Peers }

func (loneNode) Reports() []Report { return nil }

// Requests are placed by the last report of this node's files, explanations by the files themselves.
func TestPlacementReadsReportedFiles(t *testing.T) {
	v := &repository.Version{Name: "m", Number: 1, Main: "m.onnx", Files: map[string]repository.File{"m.onnx": {Digest: "sha256:0"}}}
	store := &countedArtifacts{files: true}
	s := &Server{opts: Options{Artifacts: store, Peers: loneNode{}}}
	s.files = map[string]bool{keyOf(v).content: false}
	for range 3 {
		s.candidates(v, false)
	}
	if store.queries != 0 {
		t.Errorf("placing 3 requests read the store %d times", store.queries)
	}
	if hasFiles(s, v, keyOf(v), false) || !hasFiles(s, v, keyOf(v), true) {
		t.Error("the report says that the files are missing, the store that they are there")
	}
	if s.Explain(v); store.queries != 2 {
		t.Errorf("an explanation read the store %d times", store.queries-1)
	}
}
