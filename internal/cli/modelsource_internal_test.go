package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/artifact/artifacttest"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A modelNode has the artifacts that are pushed, and the last push of a model.
type modelNode struct {
	mu        sync.Mutex
	artifacts map[string]string
	puts      int
	pushed    client.ModelPush
}

func (n *modelNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	digest := strings.TrimPrefix(r.URL.Path, "/v1/artifacts/")
	switch {
	case r.URL.Path == "/v1/models":
		_ = json.NewDecoder(r.Body).Decode(&n.pushed)
		_, _ = io.WriteString(w, `{"name":"m","version":1}`)
	case r.Method == http.MethodPut:
		content, err := io.ReadAll(r.Body)
		if err != nil || artifact.Digest(content) != digest {
			http.Error(w, "another digest", http.StatusBadRequest)
			return
		}
		n.artifacts[digest] = string(content)
		n.puts++
		_, _ = io.WriteString(w, `{}`)
	case n.artifacts[digest] == "":
		http.NotFound(w, r)
	}
}

// pushImage pushes files to a registry as `oras push` does, and returns the reference.
func pushImage(t *testing.T, registry, name string, files map[string]string) string {
	t.Helper()
	do := func(method, path, contentType, body string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, registry+"/v2/"+name+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", contentType)
		r, err := http.DefaultClient.Do(q)
		if err != nil || r.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %v, %v", method, path, r, err)
		}
		_ = r.Body.Close()
	}
	var layers []string
	for title, content := range files {
		digest := artifact.Digest([]byte(content))
		do(http.MethodPost, "/blobs/uploads/?digest="+digest, "application/octet-stream", content)
		layers = append(layers, fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d,"annotations":{"org.opencontainers.image.title":%q}}`, digest, len(content), title))
	}
	const mediaType = "application/vnd.oci.image.manifest.v1+json"
	do(http.MethodPut, "/manifests/v1", mediaType, `{"schemaVersion":2,"mediaType":"`+mediaType+`","layers":[`+strings.Join(layers, ",")+`]}`)
	return "oci:" + strings.TrimPrefix(registry, "http://") + "/" + name + ":v1"
}

// openModelNode starts a node and returns the environment of commands that use it.
func openModelNode(t *testing.T) (*modelNode, *Env) {
	t.Helper()
	n, dir := &modelNode{artifacts: map[string]string{}}, t.TempDir()
	l, err := unixsock.Listen(filepath.Join(dir, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: n}} //nolint:gosec // for a test
	server.Start()
	t.Cleanup(server.Close)
	return n, &Env{Stdout: io.Discard, Stderr: io.Discard, Environ: []string{"DOCKER_CONFIG=" + t.TempDir()}, config: settings{data: dir}}
}

// A registry that ends its connection within a file is named, not the node.
func TestPushOfATruncatedFile(t *testing.T) {
	_, env := openModelNode(t)
	store := &artifacttest.Registry{}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			store.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", "7")
		_, _ = io.WriteString(w, "wei")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // net/http closes the connection
	}))
	t.Cleanup(registry.Close)
	reference := pushImage(t, registry.URL, "models/mlp", map[string]string{"mlp.onnx": "weights"})
	err := runModelsPush(t.Context(), env, modelsPushOptions{}, "m", reference)
	if err == nil || !strings.Contains(err.Error(), "the registry ended the connection after 3 of the 7 bytes of mlp.onnx") {
		t.Error(err)
	}
}

// A slowReader sends a byte after each pause, and nothing after the last one.
type slowReader struct {
	ctx    context.Context //nolint:containedctx // of a test
	pauses []time.Duration
}

func (r *slowReader) Read(b []byte) (int, error) {
	if len(r.pauses) == 0 {
		<-r.ctx.Done()
		return 0, r.ctx.Err()
	}
	time.Sleep(r.pauses[0])
	r.pauses = r.pauses[1:]
	return copy(b, "x"), nil
}

func (*slowReader) Close() error { return nil }

// A registry that stops within a file, or does not begin, is given up after a while without a byte. A
// node that reads slowly does not count.
func TestStalledRegistry(t *testing.T) {
	for name, c := range map[string]struct {
		pauses []time.Duration
		want   string
	}{
		"within a file": {[]time.Duration{stallLimit - 1, stallLimit - 1, 0}, "the registry sent nothing for 2m0s after 3 of the 7 bytes of mlp.onnx"},
		"at once":       {nil, "the registry sent nothing for 2m0s after 0 of the 7 bytes of mlp.onnx"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := openSource(t.Context(), func(ctx context.Context) (io.ReadCloser, error) { return &slowReader{ctx, c.pauses}, nil })
				defer source.Close()
				for range c.pauses {
					if _, err := source.Read(make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * stallLimit) // the node
				}
				_, err := io.ReadAll(source)
				if got := fmt.Sprint(source.explain("mlp.onnx", 7)); !errors.Is(err, errStalled) || !strings.HasPrefix(got, c.want) {
					t.Errorf("%v, %s", err, got)
				}
			})
		})
	}
}

// A model in a registry is copied to the node, its files only once, with its configuration.
func TestPushModelFromRegistry(t *testing.T) {
	n, env := openModelNode(t)
	registry := httptest.NewServer(&artifacttest.Registry{})
	t.Cleanup(registry.Close)
	reference := pushImage(t, registry.URL, "models/mlp", map[string]string{"mlp.onnx": "weights", "mlp.onnx.data": "more", "model.yaml": "threads: 1\n"})
	for range 2 {
		if err := runModelsPush(t.Context(), env, modelsPushOptions{}, "m", reference); err != nil {
			t.Fatal(err)
		}
	}
	p := n.pushed
	if p.Main != "mlp.onnx" || len(p.Files) != 2 || n.artifacts[p.Files["mlp.onnx"]] != "weights" || n.artifacts[p.Files["mlp.onnx.data"]] != "more" || p.Config != "threads: 1\n" {
		t.Errorf("pushed %+v", p)
	}
	if n.puts != 2 {
		t.Errorf("%d files were copied", n.puts)
	}
	two := pushImage(t, registry.URL, "models/two", map[string]string{"a.onnx": "a", "b.gguf": "b"})
	if err := runModelsPush(t.Context(), env, modelsPushOptions{}, "m", two); err == nil || !strings.Contains(err.Error(), "want one .onnx or .gguf") {
		t.Errorf("two models: %v", err)
	}
	if err := runModelsPush(t.Context(), env, modelsPushOptions{}, "m", strings.Replace(reference, ":v1", ":v2", 1)); err == nil || !strings.Contains(err.Error(), "does not have it") {
		t.Errorf("a tag that is not there: %v", err)
	}
}
