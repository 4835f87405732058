package node

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/train/job"
)

// jobsAPI is the part of the local API about training jobs.
type jobsAPI struct{ manager *job.Manager }

func (a *jobsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/jobs", api.Answer(func(*http.Request) ([]client.Job, error) { return a.manager.List(), nil }))
	mux.HandleFunc("GET /v1/jobs/{id}", api.Answer(func(r *http.Request) (client.Job, error) { return a.manager.Get(r.PathValue("id")) }))
	mux.HandleFunc("POST /v1/jobs", a.post)
	mux.HandleFunc("GET /v1/data", api.Answer(func(*http.Request) ([]client.Dataset, error) { return a.manager.Datasets(), nil }))
	mux.HandleFunc("GET /v1/data/{name}", api.Answer(func(r *http.Request) (client.Dataset, error) { return a.manager.Dataset(r.PathValue("name")) }))
	mux.HandleFunc("PUT /v1/data/{name}", api.Answer(func(r *http.Request) (client.Dataset, error) {
		return a.manager.PutDataset(r.Context(), r.PathValue("name"), r.URL.Query().Get("digest"))
	}))
	mux.HandleFunc("DELETE /v1/data/{name}", api.Answer(func(r *http.Request) (api.Nothing, error) {
		return api.Nothing{}, a.manager.DeleteDataset(r.Context(), r.PathValue("name"))
	}))
	mux.HandleFunc("GET /v1/chunks/{digest}", a.chunk)
	mux.HandleFunc("GET /v1/jobs/{id}/logs", a.logs)
	mux.HandleFunc("GET /v1/jobs/{id}/profiles", a.profiles)
	mux.HandleFunc("DELETE /v1/jobs/{id}", api.Answer(func(r *http.Request) (api.Nothing, error) {
		return api.Nothing{}, a.manager.Cancel(r.PathValue("id"))
	}))
	mux.HandleFunc("POST /v1/jobs/{id}/resume", api.Answer(func(r *http.Request) (api.Nothing, error) {
		return api.Nothing{}, a.manager.Resume(r.Context(), r.PathValue("id"))
	}))
}

// chunk sends a part of a dataset.
func (a *jobsAPI) chunk(w http.ResponseWriter, r *http.Request) {
	content, err := a.manager.Chunk(r.Context(), r.PathValue("digest"))
	if err != nil {
		api.Refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(content) // an error means that the client has left
}

// post submits a job. Unless it is detached it lasts as long as the request.
func (a *jobsAPI) post(w http.ResponseWriter, r *http.Request) {
	var spec client.JobSpec
	if err := readBody(w, r, &spec); err != nil {
		api.Refuse(w, err)
		return
	}
	submitted, err := a.manager.Submit(r.Context(), spec)
	if err != nil {
		api.Refuse(w, err)
		return
	}
	events := newJobEvents(w)
	if !spec.Detach {
		defer submitted.Cancel() // it has no effect on a job that has ended
	}
	a.streamEvents(r.Context(), events, submitted.ID(), 0, !spec.Detach)
}

func (a *jobsAPI) logs(w http.ResponseWriter, r *http.Request) {
	lines, err := strconv.Atoi(r.URL.Query().Get("lines"))
	if err != nil || lines < 0 {
		api.Refuse(w, outboard.Errorf(outboard.Invalid, "logs", "lines: want a number from 0"))
		return
	}
	if _, err := a.manager.Get(r.PathValue("id")); err != nil {
		api.Refuse(w, err)
		return
	}
	a.streamEvents(r.Context(), newJobEvents(w), r.PathValue("id"), lines, r.URL.Query().Get("follow") == "true")
}

// profiles sends the profiles of a job's ranks.
func (a *jobsAPI) profiles(w http.ResponseWriter, r *http.Request) {
	ranks, err := a.manager.ProfiledRanks(r.PathValue("id"))
	if err != nil {
		api.Refuse(w, err)
		return
	}
	events := newJobEvents(w)
	for _, rank := range ranks {
		p, err := a.manager.Profile(r.PathValue("id"), rank)
		event := client.JobEvent{Profile: &p}
		if err != nil {
			event = client.JobEvent{Failed: client.FailureOf(err)}
		}
		if events.send(event) != nil || err != nil {
			return // the client has left, or knows
		}
	}
}

// streamEvents sends a job, its lines, and at last the job's final state.
func (a *jobsAPI) streamEvents(ctx context.Context, events *jobEvents, id string, lines int, follow bool) {
	j, err := a.manager.Get(id)
	if err == nil {
		err = events.send(client.JobEvent{Job: &j})
	}
	if err == nil {
		err = a.manager.Lines(ctx, id, lines, follow, func(l client.JobLine) error { return events.send(client.JobEvent{Line: &l}) })
	}
	if err == nil {
		if j, err = a.manager.Get(id); err == nil {
			err = events.send(client.JobEvent{Job: &j})
		}
	}
	if err != nil && ctx.Err() == nil {
		_ = events.send(client.JobEvent{Failed: client.FailureOf(err)}) // the client has left
	}
}

// jobEvents writes the response to a request that follows a job, one event a line.
type jobEvents struct {
	mu      sync.Mutex
	encoder *json.Encoder
	control *http.ResponseController
}

func newJobEvents(w http.ResponseWriter) *jobEvents {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &jobEvents{encoder: json.NewEncoder(w), control: http.NewResponseController(w)}
}

func (e *jobEvents) send(event client.JobEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.encoder.Encode(event); err != nil {
		return err
	}
	return e.control.Flush()
}
