package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
)

const rustManifest = `app: words
functions: {count: {module: words.wasm}}
`

// A node that lacks a module fetches it from one that has it, whole: what is broken on its
// own disk is taken away, what is broken on the other's is not taken.
func TestArtifactsComeFromOtherNodes(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	harbour, dinghy := r.Node("harbour"), r.Node("dinghy")
	module, err := os.ReadFile(filepath.Join(deployWords(t, harbour, rustManifest), "words.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	fetched(t, dinghy, module)

	// Its own file is broken.
	again := func(change func()) {
		t.Helper()
		if err := dinghy.Stop(); err != nil {
			t.Fatal(err)
		}
		change()
		if err := dinghy.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again(func() { write(t, fetchedBlob(dinghy, module), []byte("something else")) })
	fetched(t, dinghy, module)

	// The other's file is broken, and it has none.
	again(func() {
		if err := os.Remove(fetchedBlob(dinghy, module)); err != nil {
			t.Fatal(err)
		}
		write(t, blobOf(harbour, module), module[:len(module)-1])
	})
	eventually(t, "dinghy says that it can't serve the app", func() bool {
		app, ok := appOf(t, dinghy)
		return ok && app.State == "failed"
	})
	if _, err := os.Stat(fetchedBlob(dinghy, module)); err == nil {
		t.Error("a broken module was taken")
	}
	write(t, blobOf(harbour, module), module)
	fetched(t, dinghy, module)
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// blobOf is where a node keeps a file that was deployed on it.
func blobOf(n *rig.Node, content []byte) string { return blobIn(n.Data(), content) }

// fetchedBlob is where the tenant's process of a node keeps a file that it has fetched from
// another node: it can't write to the node's artifacts.
func fetchedBlob(n *rig.Node, content []byte) string {
	return blobIn(filepath.Join(n.Data(), "tenants", "default"), content)
}

func blobIn(dir string, content []byte) string {
	return filepath.Join(dir, "artifacts", "blobs", "sha256", artifact.Digest(content)[len("sha256:"):])
}

func appOf(t testing.TB, n *rig.Node) (client.App, bool) {
	t.Helper()
	apps, err := (&client.Client{Data: n.Data()}).Apps(t.Context())
	if err != nil || len(apps) != 1 {
		return client.App{}, false
	}
	return apps[0], true
}

// fetched waits until a node serves the app, with the right module.
func fetched(t testing.TB, n *rig.Node, module []byte) {
	t.Helper()
	eventually(t, n.Name+" serves the app", func() bool {
		app, ok := appOf(t, n)
		return ok && app.State == "ready"
	})
	if got, err := os.ReadFile(fetchedBlob(n, module)); err != nil || !bytes.Equal(got, module) {
		t.Errorf("%s has %d bytes, %v, want the module's %d", n.Name, len(got), err, len(module))
	}
	if out, err := n.Output(t.Context(), "invoke", "words/count", "-d", "a a"); err != nil || out != "a 2\ncall 1\n" {
		t.Errorf("%s: %q, %v", n.Name, out, err)
	}
}
