package node

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/lifecycle"
)

func readerOf(b []byte) io.Reader { return bytes.NewReader(b) }

func (n *Node) openArtifacts(context.Context) (lifecycle.Resource, error) {
	var err error
	n.artifacts, err = artifact.Open(artifact.Options{Dir: n.folder.at(artifactsDir), Logger: n.log})
	return nothingToClose{}, err
}

// nothingToClose is a resource that has nothing to give back.
type nothingToClose struct{}

// Close implements lifecycle.Resource.
func (nothingToClose) Close() error { return nil }

const (
	// collectEvery is how often what nobody needs is looked for, spareFiles how long a file
	// stays that nobody names yet.
	collectEvery = time.Hour
	spareFiles   = time.Hour
)

// collect removes files that nothing names.
func (n *Node) collect(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		done, err := n.artifacts.Collect(ctx, n.apps.Files(), spareFiles)
		if err != nil && ctx.Err() == nil {
			n.log.Warn("files that nothing names are not all removed", "error", err)
		}
		if done.Files > 0 {
			n.log.Info("files that nothing names were removed", "files", done.Files)
		}
	}
}

func (n *Node) handleArtifacts(mux *http.ServeMux) {
	mux.HandleFunc("PUT /v1/artifacts/{digest}", api.Answer(n.putArtifact))
	mux.HandleFunc("GET /v1/artifacts/{digest}", n.getArtifact) // HEAD as well
	mux.HandleFunc("GET /v1/artifacts", api.Answer(n.getArtifacts))
	mux.HandleFunc("DELETE /v1/artifacts", api.Answer(n.deleteArtifact))
}

func (n *Node) putArtifact(r *http.Request) (client.Artifact, error) {
	digest, name := r.PathValue("digest"), r.URL.Query().Get("name")
	size, err := n.artifacts.Save(r.Context(), digest, http.MaxBytesReader(nil, r.Body, artifact.MaxSize))
	if err != nil || name == "" {
		return client.Artifact{Digest: digest, Size: outboard.Bytes(size)}, err
	}
	named, err := n.artifacts.Name(r.Context(), name, digest, artifact.Info{})
	return describeArtifact(named), err
}

func (n *Node) getArtifact(w http.ResponseWriter, r *http.Request) {
	content, err := n.artifacts.Read(r.Context(), r.PathValue("digest"))
	if err != nil {
		api.Refuse(w, err)
		return
	}
	_, _ = n.artifacts.Has(r.PathValue("digest")) // it is new again: who asks is about to name it
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func (n *Node) getArtifacts(r *http.Request) ([]client.Artifact, error) {
	named, err := n.artifacts.Names(r.Context())
	all, name := []client.Artifact{}, r.URL.Query().Get("name")
	for _, a := range named {
		if name == "" || a.Name == name {
			all = append(all, describeArtifact(a))
		}
	}
	return all, err
}

func (n *Node) deleteArtifact(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, n.artifacts.Unname(r.Context(), r.URL.Query().Get("name"))
}

func describeArtifact(a artifact.Named) client.Artifact {
	return client.Artifact{Digest: a.Module, Size: outboard.Bytes(a.Size), Name: a.Name, Manifest: a.Manifest, Created: a.Created}
}
