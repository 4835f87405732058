package oip

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// An indexEntry is a model in the repository's index.
type indexEntry struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
}

func entryOf(x *serve.Index) indexEntry {
	e := indexEntry{Name: x.Version.Name, Version: strconv.Itoa(x.Version.Number), State: "UNAVAILABLE", Reason: x.Reason}
	switch x.State {
	case serve.StateReady:
		e.State = "READY"
	case serve.StateLoading:
		e.State = "LOADING"
	case serve.StateUnloaded:
		e.Reason = "unloaded: " + cmp.Or(x.Reason, "it is loaded when a request comes")
	case serve.StateFailed:
	}
	return e
}

// indexEntries returns the models that a client may use, only the ready models if ready is set.
func (h *Handler) indexEntries(ctx context.Context, ready bool) []indexEntry {
	list := []indexEntry{}
	for _, x := range h.opts.Models.Index() {
		if e := entryOf(&x); (!ready || e.State == "READY") && h.opts.Allow(ctx, e.Name) == nil {
			list = append(list, e)
		}
	}
	return list
}

// A duration is a count and a sum of times, as in Triton's statistics.
type duration struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

func sum(count uint64, total time.Duration) duration { return duration{count, uint64(total)} }

type batchStats struct {
	Size    int      `json:"batch_size"`
	Input   duration `json:"compute_input"`
	Compute duration `json:"compute_infer"`
	Output  duration `json:"compute_output"`
}

type modelStats struct {
	Name       string              `json:"name"`
	Version    string              `json:"version"`
	Last       int64               `json:"last_inference"`
	Inferences uint64              `json:"inference_count"`
	Executions uint64              `json:"execution_count"`
	Stats      map[string]duration `json:"inference_stats"`
	Batches    []batchStats        `json:"batch_stats"`
}

// statsOf converts the counts of a model.
func statsOf(s *serve.ModelStats) modelStats {
	failed := s.Failed + s.Cancelled + s.Expired + s.RefusedFull + s.RefusedDeadline
	m := modelStats{
		Name: s.Name, Version: strconv.Itoa(s.Version), Inferences: s.Rows, Executions: s.Executions, Batches: []batchStats{},
		Stats: map[string]duration{
			"success": sum(s.Succeeded, s.Total), "fail": sum(failed, s.FailedTime), "queue": sum(s.Succeeded, s.Queue),
			"compute_input": sum(s.Succeeded, s.In), "compute_infer": sum(s.Succeeded, s.Compute), "compute_output": sum(s.Succeeded, s.Out),
			"cache_hit": {}, "cache_miss": {},
		},
	}
	if !s.Last.IsZero() {
		m.Last = s.Last.UnixMilli()
	}
	for size, b := range s.Batches {
		m.Batches = append(m.Batches, batchStats{Size: size, Compute: sum(b.Count, b.Compute), Input: sum(b.Count, b.In), Output: sum(b.Count, b.Out)})
	}
	slices.SortFunc(m.Batches, func(a, b batchStats) int { return a.Size - b.Size })
	return m
}

// statistics returns the counts of a model on this node, of all loaded models for the name "".
func (h *Handler) statistics(ctx context.Context, name, version string) ([]modelStats, error) {
	if name != "" {
		if _, err := h.opts.Models.Ready(name, version); err != nil {
			return nil, err
		}
	}
	list := []modelStats{}
	for _, s := range h.opts.Models.Stats() {
		if h.opts.Allow(ctx, s.Name) != nil {
			continue
		}
		if (name == "" || s.Name == name) && (version == "" || strconv.Itoa(s.Version) == version) {
			list = append(list, statsOf(&s))
		}
	}
	slices.SortFunc(list, func(a, b modelStats) int {
		if a.Name != b.Name {
			if a.Name < b.Name {
				return -1
			}
			return 1
		}
		return len(a.Version) - len(b.Version)
	})
	return list, nil
}

func (h *Handler) stats(w http.ResponseWriter, r *http.Request) {
	list, err := h.statistics(r.Context(), r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"model_stats": list})
}

var errNoSharedMemory = outboard.Errorf(outboard.Invalid, "shared memory", "this node does not let clients register memory: start it with --models-shm")
