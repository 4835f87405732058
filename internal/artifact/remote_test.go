package artifact_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/artifact/artifacttest"
)

// serve runs a registry and returns its host. change may wrap it.
func serve(t *testing.T, change func(http.Handler) http.Handler) string {
	t.Helper()
	var handler http.Handler = &artifacttest.Registry{}
	if change != nil {
		handler = change(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func newRemote(t *testing.T, dockerConfig string) *artifact.Remote {
	t.Helper()
	if dockerConfig == "" {
		dockerConfig = filepath.Join(t.TempDir(), "config.json")
	}
	// Without the default client, which tries again after seconds.
	r, err := artifact.NewRemote(artifact.RemoteOptions{DockerConfig: dockerConfig, HTTP: &http.Client{}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refOf(t *testing.T, text string) artifact.Reference {
	t.Helper()
	ref, err := artifact.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func TestPushAndPull(t *testing.T) {
	host := serve(t, nil)
	r := newRemote(t, "")
	ref := refOf(t, host+"/shop/cart:v1")
	info := artifact.Info{Created: time.Date(2026, time.March, 1, 2, 3, 4, 5, time.UTC), Author: "shop"}
	pushed, err := r.Push(t.Context(), ref, module("cart"), info)
	if err != nil {
		t.Fatal(err)
	}
	later := artifact.Info{Created: info.Created.Add(time.Hour), Author: "shop"}
	again, err := r.Push(t.Context(), ref, module("cart"), later)
	if err != nil || again != pushed {
		t.Errorf("the same module is pushed as %s, then as %s: %v", pushed, again, err)
	}
	both := refOf(t, host+"/shop/cart:v0@"+pushed)
	if _, err := r.Push(t.Context(), both, module("cart"), info); err != nil {
		t.Error(err)
	}
	if resolved, err := r.Resolve(t.Context(), refOf(t, host+"/shop/cart:v0")); err != nil || resolved != pushed {
		t.Errorf("pushed with its tag and digest, resolved %s, %v", resolved, err)
	}
	if resolved, err := r.Resolve(t.Context(), ref); err != nil || resolved != pushed {
		t.Errorf("resolved %s, %v", resolved, err)
	}
	for _, name := range []string{ref.String(), ref.String() + "@" + pushed, host + "/shop/cart@" + pushed} {
		p, err := r.Pull(t.Context(), refOf(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p.Module, module("cart")) || p.Manifest != pushed || p.Info.Author != "shop" || p.Info.Created.Second() != 4 {
			t.Errorf("%s: pulled %+v", name, p)
		}
		s := open(t, t.TempDir(), nil)
		if _, err := s.SavePulled(t.Context(), ref.Name(), p); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Resolve(t.Context(), ref.Name()); err != nil || n.Manifest != pushed {
			t.Errorf("keeps %+v, %v", n, err)
		}
	}
	if _, err := r.Push(t.Context(), refOf(t, ref.String()+"@"+pushed), module("other"), info); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("pushed what has another digest: %v", err)
	}
	for name, kind := range map[string]outboard.Kind{
		host + "/shop/cart:v2":  outboard.NotFound,
		host + "/shop/price:v1": outboard.NotFound,
		"cart:v1":               outboard.Invalid, // of the node's store
	} {
		if _, err := r.Pull(t.Context(), refOf(t, name)); outboard.KindOf(err) != kind {
			t.Errorf("%s: %v, want %v", name, err, kind)
		}
	}
	// Another author's, or another content, takes the tag.
	for _, other := range []struct {
		module []byte
		info   artifact.Info
	}{{module("cart"), artifact.Info{Author: "fleet"}}, {module("other"), later}} {
		taken, err := r.Push(t.Context(), ref, other.module, other.info)
		if err != nil || taken == pushed {
			t.Errorf("it is still %s, %v", taken, err)
		}
		if p, err := r.Pull(t.Context(), ref); err != nil || !bytes.Equal(p.Module, other.module) || p.Info.Author != other.info.Author {
			t.Errorf("pulled %+v, %v", p, err)
		}
	}
}

// The layout is that of the specification, member for member.
func TestLayout(t *testing.T) {
	host := serve(t, nil)
	ref := refOf(t, host+"/cart:v1")
	info := artifact.Info{Created: time.Date(2026, time.March, 1, 2, 3, 4, 0, time.UTC)}
	if _, err := newRemote(t, "").Push(t.Context(), ref, module("cart"), info); err != nil {
		t.Fatal(err)
	}
	repo := repository(t, ref)
	d, manifest := fetch(t, repo, "v1")
	if d.MediaType != "application/vnd.oci.image.manifest.v1+json" {
		t.Error(d.MediaType)
	}
	var m map[string]any
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	layer := artifact.Digest(module("cart"))
	configText := fmt.Sprintf(`{"created":"2026-03-01T02:03:04Z","architecture":"wasm","os":"wasip1","layerDigests":[%q]}`, layer)
	want := map[string]any{
		"schemaVersion": 2.0, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": map[string]any{
			"mediaType": "application/vnd.wasm.config.v0+json", "digest": artifact.Digest([]byte(configText)), "size": float64(len(configText)),
		},
		"layers": []any{map[string]any{"mediaType": "application/wasm", "digest": layer, "size": float64(len(module("cart")))}},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func repository(t *testing.T, ref artifact.Reference) *remote.Repository {
	t.Helper()
	repo, err := remote.NewRepository(ref.Registry + "/" + ref.Repository)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP, repo.Client = true, &http.Client{}
	return repo
}

func fetch(t *testing.T, repo *remote.Repository, tag string) (ocispec.Descriptor, []byte) {
	t.Helper()
	d, r, err := repo.FetchReference(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return d, text
}

// parts is an artifact that a test puts together.
type parts struct {
	mediaType  string
	configType string
	config     string
	layerType  string
	module     []byte
	layers     int
}

func (p parts) push(t *testing.T, repo *remote.Repository, tag string) {
	t.Helper()
	blob := func(mediaType string, content []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
		if err := repo.Blobs().Push(t.Context(), d, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	m := ocispec.Manifest{MediaType: p.mediaType, Config: blob(p.configType, []byte(p.config)), Layers: []ocispec.Descriptor{}}
	m.SchemaVersion = 2
	for range p.layers {
		m.Layers = append(m.Layers, blob(p.layerType, p.module))
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	d := ocispec.Descriptor{MediaType: p.mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	if err := repo.PushReference(t.Context(), d, bytes.NewReader(text), tag); err != nil {
		t.Fatal(err)
	}
}

func config(os, layer, more string) string {
	return fmt.Sprintf(`{"architecture":"wasm","os":%q,"layerDigests":[%q]%s}`, os, layer, more)
}

func TestRefused(t *testing.T) {
	layer := artifact.Digest(module("cart"))
	right := parts{
		ocispec.MediaTypeImageManifest, artifact.ConfigType, config("wasip1", layer, ""), artifact.LayerType, module("cart"), 1,
	}
	component := []byte("\x00asm\x0d\x00\x01\x00")
	tests := map[string]struct {
		change func(*parts)
		want   string
	}{
		"right":           {func(*parts) {}, ""},
		"two layers":      {func(p *parts) { p.layers = 2 }, "it has 2 layers, and a module has one (Wasm OCI artifact, version 0)"},
		"no layer":        {func(p *parts) { p.layers = 0 }, "it has 0 layers, and a module has one (Wasm OCI artifact, version 0)"},
		"an image":        {func(p *parts) { p.configType = ocispec.MediaTypeImageConfig }, "it is no WebAssembly module: its config is a application/vnd.oci.image.config.v1+json, not a application/vnd.wasm.config.v0+json"},
		"a layer of tar":  {func(p *parts) { p.layerType = ocispec.MediaTypeImageLayer }, "its layer is a application/vnd.oci.image.layer.v1.tar, not a application/wasm"},
		"an index":        {func(p *parts) { p.mediaType = ocispec.MediaTypeImageIndex }, "it is a application/vnd.oci.image.index.v1+json, and a module is a application/vnd.oci.image.manifest.v1+json: name one module, not a list of them"},
		"wasip2":          {func(p *parts) { p.config = config("wasip2", layer, `,"component":{"exports":[]}`) }, "it is a component (wasip2): only core modules for wasip1 can be run"},
		"a component":     {func(p *parts) { p.config = config("wasip1", layer, `,"component":{}`) }, "it is a component (wasip1): only core modules for wasip1 can be run"},
		"another system":  {func(p *parts) { p.config = config("linux", layer, "") }, `it is made for "linux", not "wasip1"`},
		"another machine": {func(p *parts) { p.config = strings.Replace(p.config, "wasm", "amd64", 1) }, `its architecture is "amd64", not "wasm"`},
		"other layers":    {func(p *parts) { p.config = config("wasip1", artifact.Digest(nil), "") }, "its config is about other layers: [" + artifact.Digest(nil) + "], not " + layer},
		"no layers named": {func(p *parts) { p.config = `{"architecture":"wasm","os":"wasip1"}` }, "its config is about other layers: [], not " + layer},
		"config of text":  {func(p *parts) { p.config = "hello" }, "its config is no JSON: invalid character 'h' looking for beginning of value"},
		"text": {func(p *parts) {
			p.module = []byte("hello")
			p.config = config("wasip1", artifact.Digest(p.module), "")
		}, "it is no WebAssembly module: build one, as `outboard new go NAME` shows"},
		"component's bytes": {func(p *parts) {
			p.module = component
			p.config = config("wasip1", artifact.Digest(p.module), "")
		}, "it is a component: build a core module, for wasip1"},
	}
	host := serve(t, nil)
	ref := refOf(t, host+"/shop/cart:v1")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := right
			test.change(&p)
			p.push(t, repository(t, ref), "v1")
			_, err := newRemote(t, "").Pull(t.Context(), ref)
			want := "pull " + ref.String() + ": " + test.want
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || err.Error() != want || outboard.KindOf(err) != outboard.Invalid):
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
	for what, content := range map[string][]byte{"text": []byte("hello"), "a component": component} {
		if _, err := newRemote(t, "").Push(t.Context(), ref, content, artifact.Info{}); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("pushed %s: %v", what, err)
		}
	}
}

// A registry that gives other bytes than it was asked for is found out.
func TestLyingRegistry(t *testing.T) {
	layer := strings.TrimPrefix(artifact.Digest(module("cart")), "sha256:")
	lie := false
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !lie || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, layer) {
				next.ServeHTTP(w, r)
				return
			}
			other := module("cars")
			w.Header().Set("Content-Length", fmt.Sprint(len(other)))
			_, _ = w.Write(other)
		})
	})
	ref := refOf(t, host+"/shop/cart:v1")
	r := newRemote(t, "")
	if _, err := r.Push(t.Context(), ref, module("cart"), artifact.Info{}); err != nil {
		t.Fatal(err)
	}
	lie = true
	if _, err := r.Pull(t.Context(), ref); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("believed it: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "shop" || password != "secret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	file := func(user string) string {
		auth := base64.StdEncoding.EncodeToString([]byte(user))
		name := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(name, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, auth), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	ref := refOf(t, host+"/shop/cart:v1")
	if _, err := newRemote(t, file("shop:secret")).Push(t.Context(), ref, module("cart"), artifact.Info{}); err != nil {
		t.Fatal(err)
	}
	for what, config := range map[string]string{"none": "", "wrong ones": file("shop:guess")} {
		_, err := newRemote(t, config).Pull(t.Context(), ref)
		if outboard.KindOf(err) != outboard.Denied || !strings.Contains(err.Error(), "`docker login "+host+"`") {
			t.Errorf("with %s: %v", what, err)
		}
	}
	wrong := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(wrong, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := artifact.NewRemote(artifact.RemoteOptions{DockerConfig: wrong}); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("a file that can't be read: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	if _, err := newRemote(t, "").Pull(t.Context(), refOf(t, host+"/cart:v1")); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newRemote(t, "").Pull(ctx, refOf(t, host+"/cart:v1")); outboard.KindOf(err) != outboard.Other {
		t.Errorf("%v", err)
	}
}
