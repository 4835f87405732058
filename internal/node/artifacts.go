package node

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/train/job"
)

const (
	// collectInterval is how often unreferenced files are removed; unreferencedLimit is how long
	// a file stays without a reference.
	collectInterval   = time.Hour
	unreferencedLimit = time.Hour
)

// artifactCollector removes unreferenced files.
type artifactCollector struct {
	store  *artifact.Store
	apps   *catalog.Catalog
	models *repository.Repository
	jobs   *job.Manager
	log    *slog.Logger
}

// run removes files until ctx ends.
func (c *artifactCollector) run(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(collectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		done, err := c.store.Collect(ctx, c.needed(ctx), unreferencedLimit)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("unreferenced files are not all removed", "error", err)
		}
		if done.Files > 0 {
			c.log.Info("unreferenced files were removed", "files", done.Files)
		}
	}
}

// needed returns the digests of the files that apps, models and jobs refer to.
func (c *artifactCollector) needed(ctx context.Context) map[string]bool {
	files := c.apps.Files()
	maps.Copy(files, c.models.Files())
	maps.Copy(files, c.jobs.Files(ctx))
	return files
}

// discard implements job.Discard.
func (c *artifactCollector) discard(ctx context.Context, digests []string, usedUntil time.Time) error {
	done, err := c.store.Discard(ctx, digests, c.needed(ctx), usedUntil)
	if done.Files > 0 {
		c.log.Debug("chunks of superseded checkpoints were removed", "files", done.Files, "bytes", done.Bytes)
	}
	return err
}

// collectorOf returns the collector of a node's artifacts, once its jobs are open.
func collectorOf(n *Node) *artifactCollector {
	return &artifactCollector{store: n.artifacts, apps: n.apps, models: n.models.repository, jobs: n.jobs.Load().manager, log: n.log}
}

// artifactAPI is the part of the local API about artifacts.
type artifactAPI struct{ store *artifact.Store }

func (a *artifactAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("PUT /v1/artifacts/{digest}", api.Answer(a.put))
	mux.HandleFunc("GET /v1/artifacts/{digest}", a.get) // HEAD as well
	mux.HandleFunc("GET /v1/artifacts", api.Answer(a.list))
	mux.HandleFunc("DELETE /v1/artifacts", api.Answer(a.delete))
}

func (a *artifactAPI) put(r *http.Request) (client.Artifact, error) {
	digest, name := r.PathValue("digest"), r.URL.Query().Get("name")
	body := http.MaxBytesReader(nil, r.Body, artifact.MaxSize)
	size, err := a.store.Save(r.Context(), digest, body)
	if err != nil {
		// A client that still writes when the connection ends gets no response: it would not learn that
		// the disk is full.
		_, _ = io.Copy(io.Discard, body)
	}
	if err != nil || name == "" {
		return client.Artifact{Digest: digest, Size: outboard.Bytes(size)}, err
	}
	named, err := a.store.Name(r.Context(), name, digest, artifact.Info{})
	return describeArtifact(named), err
}

func (a *artifactAPI) get(w http.ResponseWriter, r *http.Request) {
	content, err := a.store.Read(r.Context(), r.PathValue("digest"))
	if err != nil {
		api.Refuse(w, err)
		return
	}
	_, _ = a.store.Has(r.PathValue("digest")) // counts as new again: a reference follows
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func (a *artifactAPI) list(r *http.Request) ([]client.Artifact, error) {
	named, err := a.store.Names(r.Context())
	all, name := []client.Artifact{}, r.URL.Query().Get("name")
	for _, n := range named {
		if name == "" || n.Name == name {
			all = append(all, describeArtifact(n))
		}
	}
	return all, err
}

func (a *artifactAPI) delete(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, a.store.Unname(r.Context(), r.URL.Query().Get("name"))
}

func describeArtifact(a artifact.Named) client.Artifact {
	return client.Artifact{Digest: a.Module, Size: outboard.Bytes(a.Size), Name: a.Name, Manifest: a.Manifest, Created: a.Created}
}
