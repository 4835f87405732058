package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
)

// The ensemble of docs/models.md computes what its two models compute one after the other, also while the
// pool has API keys. An app can't unload the models.
func TestDocumentedEnsemble(t *testing.T) {
	n := own(t, rig.Options{Loopback: true, Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}}}).Node("harbour")
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := n.Output(t.Context(), args...)
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return out
	}
	for name, file := range map[string][]byte{"features": onnxfile.MLP(1, 784, 128, 64).Encode(), "classifier": onnxfile.MLP(2, 64, 32, 10).Encode()} {
		path := filepath.Join(dir, name+".onnx")
		write(t, path, file)
		run("models", "push", name, path)
	}
	app := t.TempDir()
	for name, text := range documentedFiles(t, "../../docs/models.md", "app.yaml", "read.yaml") {
		write(t, filepath.Join(app, name), []byte(text))
	}
	run("deploy", app)
	pixels := make([]float32, 784)
	for i := range pixels {
		pixels[i] = float32(i%7) / 7
	}
	want := inferred(t, run, "classifier", inferred(t, run, "features", pixels))
	run("keys", "create", "website")
	status, answer := postJSON(t, n, "/digits/read", map[string]any{"pixels": pixels})
	var got struct {
		Classes []float32 `json:"classes"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || status != http.StatusOK || len(got.Classes) != 10 {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	for i := range want {
		if d := want[i] - got.Classes[i]; d > 1e-5 || d < -1e-5 {
			t.Errorf("class %d: %v, the models one after the other have %v", i, got.Classes[i], want[i])
		}
	}
	write(t, filepath.Join(app, "read.yaml"), []byte(unloadWorkflow))
	run("deploy", app)
	if status, answer := postJSON(t, n, "/digits/read", map[string]any{"pixels": pixels}); status == http.StatusOK || !strings.Contains(string(answer), "apps may use models") {
		t.Errorf("an app unloads a model: %d %s", status, answer)
	}
}

const unloadWorkflow = `document: {dsl: '1.0.0', namespace: digits, name: read, version: '1.0.0'}
do:
  - unload:
      call: grpc
      with:
        service: {name: inference.GRPCInferenceService, host: pool}
        method: RepositoryModelUnload
        arguments: {modelName: classifier}
`

// documentedFiles returns the listings of a document that begin with a comment that names their file.
func documentedFiles(t *testing.T, document string, names ...string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		_, listing, found := strings.Cut(string(text), "```yaml\n# "+name+"\n")
		if !found {
			t.Fatalf("%s has no listing of %s", document, name)
		}
		files[name], _, _ = strings.Cut(listing, "```")
	}
	return files
}

// inferred returns the output of a model, by `outboard infer`.
func inferred(t *testing.T, run func(...string) string, name string, input []float32) []float32 {
	t.Helper()
	encoded, err := json.Marshal([][]float32{input})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "input.json")
	write(t, path, encoded)
	var outputs []struct {
		Data []float32 `json:"data"`
	}
	if err := json.Unmarshal([]byte(run("infer", name, "-i", "@"+path)), &outputs); err != nil || len(outputs) != 1 {
		t.Fatalf("%d outputs of %s: %v", len(outputs), name, err)
	}
	return outputs[0].Data
}

// postJSON posts a value to an app of a node.
func postJSON(t *testing.T, n *rig.Node, path string, value any) (status int, answer []byte) {
	t.Helper()
	s, err := (&client.Client{Data: n.Data()}).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.HTTP+path, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}
