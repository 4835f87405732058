package cli_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/train/data"
)

// fakeJobs serves the part of a node's API that is about datasets and training jobs. A job ends as
// its program says: "true" succeeds, "false" fails with the status 3 of rank 1. The lock is that of
// the fakeNode.
type fakeJobs struct {
	store *artifact.Store
	specs []client.JobSpec
	jobs  []client.Job
	data  []client.Dataset
	// logs are the queries of requests for logs.
	logs []string
	// corrupt has the node send other content than it was asked for.
	corrupt bool
}

func (f *fakeJobs) register(mux *http.ServeMux, handle func(string, func(*http.Request) (any, error)), store *artifact.Store) {
	f.store = store
	handle("GET /v1/jobs", func(*http.Request) (any, error) { return f.jobs, nil })
	handle("GET /v1/jobs/{id}", func(r *http.Request) (any, error) { return f.find(r.PathValue("id")) })
	handle("DELETE /v1/jobs/{id}", func(r *http.Request) (any, error) { return f.set(r.PathValue("id"), client.JobCanceled) })
	handle("POST /v1/jobs/{id}/resume", func(r *http.Request) (any, error) { return f.set(r.PathValue("id"), client.JobRunning) })
	mux.HandleFunc("POST /v1/jobs", f.submit)
	mux.HandleFunc("GET /v1/jobs/{id}/logs", f.stream)
	handle("GET /v1/data", func(*http.Request) (any, error) { return f.data, nil })
	handle("GET /v1/data/{name}", func(r *http.Request) (any, error) { return f.dataset(r.PathValue("name")) })
	handle("PUT /v1/data/{name}", f.putDataset)
	handle("DELETE /v1/data/{name}", func(r *http.Request) (any, error) {
		d, err := f.dataset(r.PathValue("name"))
		f.data = slices.DeleteFunc(f.data, func(other client.Dataset) bool { return other.Name == d.Name })
		return struct{}{}, err
	})
	mux.HandleFunc("GET /v1/chunks/{digest}", f.chunk)
}

func (f *fakeJobs) find(id string) (*client.Job, error) {
	for i := range f.jobs {
		if f.jobs[i].ID == id {
			return &f.jobs[i], nil
		}
	}
	return nil, notThere("job", id)
}

func (f *fakeJobs) set(id string, s client.JobState) (any, error) {
	j, err := f.find(id)
	if err == nil {
		j.State = s
	}
	return struct{}{}, err
}

// submit streams what happens to a job until it ends, or only that it was accepted.
func (f *fakeJobs) submit(w http.ResponseWriter, r *http.Request) {
	out := json.NewEncoder(w)
	var spec client.JobSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		_ = out.Encode(client.JobEvent{Failed: client.FailureOf(err)})
		return
	}
	f.specs = append(f.specs, spec)
	if spec.Data == "none" {
		_ = out.Encode(client.JobEvent{Failed: client.FailureOf(notThere("dataset", spec.Data))})
		return
	}
	j := client.Job{
		ID: "job-" + strconv.Itoa(len(f.specs)), Node: "harbour", Spec: spec, State: client.JobRunning, Attempt: 1, World: spec.Ranks,
		Created: fakePushed, Started: fakePushed,
	}
	_ = out.Encode(client.JobEvent{Job: &j})
	if !spec.Detach {
		for _, l := range jobLines() {
			_ = out.Encode(client.JobEvent{Line: &l})
		}
		switch j.State, j.Ended = client.JobSucceeded, fakePushed.Add(90*time.Second); spec.Args[0] {
		case "false":
			j.State, j.Status, j.Reason = client.JobFailed, 3, "rank 1 exited with the status 3"
		case "sleep":
			j.State, j.Ended = client.JobRunning, time.Time{}
		}
		_ = out.Encode(client.JobEvent{Job: &j})
	}
	f.jobs = append(f.jobs, j)
}

func jobLines() []client.JobLine {
	return []client.JobLine{
		{Time: fakePushed, Rank: -1, Text: "2 devices of harbour are leased"},
		{Time: fakePushed, Rank: 0, Text: "step 1/2 loss 0.5"},
		{Time: fakePushed, Rank: 1, Stderr: true, Text: "warning\x1b[2J"},
	}
}

func (f *fakeJobs) stream(w http.ResponseWriter, r *http.Request) {
	f.logs = append(f.logs, r.URL.RawQuery)
	for _, l := range jobLines() {
		_ = json.NewEncoder(w).Encode(client.JobEvent{Line: &l})
	}
}

func (f *fakeJobs) dataset(name string) (client.Dataset, error) {
	for _, d := range f.data {
		if d.Name == name {
			return d, nil
		}
	}
	return client.Dataset{}, notThere("dataset", name)
}

func (f *fakeJobs) putDataset(r *http.Request) (any, error) {
	digest := r.URL.Query().Get("digest")
	m, err := data.Load(r.Context(), data.StoreChunks{Store: f.store}, digest)
	if err != nil {
		return nil, err
	}
	d := client.Dataset{Name: r.PathValue("name"), Node: "harbour", Digest: digest, Files: len(m.Files), Size: outboard.Bytes(m.Size()), Created: fakePushed}
	f.data = append(slices.DeleteFunc(f.data, func(other client.Dataset) bool { return other.Name == d.Name }), d)
	return d, nil
}

func (f *fakeJobs) chunk(w http.ResponseWriter, r *http.Request) {
	content, err := f.store.Read(r.Context(), r.PathValue("digest"))
	if err != nil {
		w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
		_ = json.NewEncoder(w).Encode(client.FailureOf(err))
		return
	}
	if f.corrupt && !strings.HasPrefix(string(content), "{") {
		content = bytes.ToUpper(content)
	}
	_, _ = w.Write(content)
}
