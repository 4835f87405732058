package registry

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	foreign "github.com/google/go-containerregistry/pkg/registry"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/artifact/artifacttest"
)

// The registry that our tests use answers as one that other people wrote.
func TestPushAndPull(t *testing.T) {
	registries := map[string]http.Handler{
		"go-containerregistry": foreign.New(foreign.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))),
		"artifacttest":         &artifacttest.Registry{},
	}
	for name, handler := range registries {
		t.Run(name, func(t *testing.T) { pushAndPull(t, handler) })
	}
}

func pushAndPull(t *testing.T, handler http.Handler) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := artifact.NewRemote(artifact.RemoteOptions{DockerConfig: filepath.Join(t.TempDir(), "config.json"), HTTP: &http.Client{}})
	if err != nil {
		t.Fatal(err)
	}
	tagged := reference(t, server, "/shop/cart:v1")
	module := []byte("\x00asm\x01\x00\x00\x00")
	pushed, err := client.Push(t.Context(), tagged, module, artifact.Info{Author: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if resolved, err := client.Resolve(t.Context(), tagged); err != nil || resolved != pushed {
		t.Errorf("resolved %s, %v, want %s", resolved, err, pushed)
	}
	for _, ref := range []artifact.Reference{tagged, reference(t, server, "/shop/cart@"+pushed)} {
		pulled, err := client.Pull(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(pulled.Module, module) || pulled.Manifest != pushed || pulled.Info.Author != "shop" {
			t.Errorf("%v: pulled %+v", ref, pulled)
		}
	}
	if _, err := client.Pull(t.Context(), reference(t, server, "/shop/cart:v2")); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("pulled a tag that was never pushed: %v", err)
	}
}

func reference(t *testing.T, server *httptest.Server, name string) artifact.Reference {
	t.Helper()
	ref, err := artifact.ParseReference(strings.TrimPrefix(server.URL, "http://") + name)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
