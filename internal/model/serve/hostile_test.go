package serve_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// Another node of the pool may write versions of its models to the table. Such a version creates no
// file outside of the folder of the node's models, reads none, and does not end the node.
func TestVersionsOfHostileNodes(t *testing.T) {
	root := t.TempDir()
	b := openWith(t, func(o *serve.Options) { o.Dir = filepath.Join(root, "models") })
	if err := os.WriteFile(filepath.Join(root, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := `"m.fake": {"digest": "a", "size": 1}`
	for name, version := range map[string]string{
		"file":      `"name": "file", "files": {` + file + `, "../../../stolen": {"digest": "stolen", "size": 6}}`,
		"main":      `"name": "main", "main": "../../../stolen", "files": {"../../../stolen": {"digest": "stolen", "size": 6}}`,
		"../stolen": `"name": "../stolen", "files": {` + file + `}`,
		"pairs":     `"name": "pairs", "config": {"pairs": "../../../secret"}, "files": {` + file + `}`,
		"queue":     `"name": "queue", "config": {"queue": {"size": -1}, "instances": -1}, "files": {` + file + `}`,
		"size":      `"name": "size", "files": {"m.fake": {"digest": "a", "size": -1}}`,
	} {
		if name != "main" {
			version += `, "main": "m.fake"`
		}
		text := `{"versions": [{"number": 1, "engine": "fake", "by": "dinghy", ` + version + `}]}`
		if _, err := b.state.Put(t.Context(), "models/"+name, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
		b.pushAs("after", "a", repository.Config{}) // the node has handled the entry before
		if err := b.Load(t.Context(), name, ""); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.inferWith("after", 0); err != nil {
		t.Error(err)
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, "stolen") {
			t.Errorf("a version created %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A request gets each output once, however often it names it: each copy would take the node's memory.
func TestRepeatedOutputs(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	r := b.request(0)
	r.Outputs = []string{"y", "y", "y"}
	if _, err := b.Infer(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := b.engine.outputsOfRequests(); len(got) != 1 || len(got[0]) != 1 {
		t.Errorf("the engine computed %q", got)
	}
}
