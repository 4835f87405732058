package oip

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/serve"
)

func writeJSON(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the response can't be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have disconnected
}

// refuse answers with an error in the protocol's form.
func refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, context.Canceled) {
		return // the client has disconnected
	}
	writeJSON(w, statusOf(err), map[string]string{"error": err.Error()})
}

// Refuse answers a request of a client that is not admitted.
func Refuse(w http.ResponseWriter, err error) {
	status := statusOf(err)
	switch outboard.KindOf(err) {
	case outboard.Denied:
		status = http.StatusUnauthorized
	case outboard.Busy:
		status = http.StatusTooManyRequests
	default:
	}
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

// statusOf returns Triton's HTTP status for an error.
func statusOf(err error) int {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge
	}
	switch outboard.KindOf(err) {
	case outboard.NotFound:
		return http.StatusNotFound
	case outboard.Exhausted, outboard.Busy, outboard.Unreachable, outboard.SessionLost, outboard.NoDevice:
		return http.StatusServiceUnavailable
	case outboard.Denied:
		return http.StatusForbidden
	case outboard.Conflict:
		return http.StatusConflict
	case outboard.Invalid, outboard.Protocol:
		return http.StatusBadRequest
	default:
		if errors.Is(err, context.DeadlineExceeded) {
			return http.StatusGatewayTimeout
		}
		return http.StatusInternalServerError
	}
}

func (h *Handler) server(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"name": "outboard", "version": h.opts.Version, "extensions": h.extensions()})
}

// tensorMetadata is an input or output in the metadata of a model.
type tensorMetadata struct {
	Name  string  `json:"name"`
	Type  string  `json:"datatype"`
	Shape []int64 `json:"shape"`
}

func describeTensors(list []model.Signature) []tensorMetadata {
	all := make([]tensorMetadata, len(list))
	for i, s := range list {
		all[i] = tensorMetadata{s.Name, s.Type.String(), s.Shape}
		if s.Shape == nil {
			all[i].Shape = []int64{}
		}
	}
	return all
}

func (h *Handler) metadata(w http.ResponseWriter, r *http.Request) {
	d, err := h.opts.Models.Describe(r.Context(), r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"name": d.Version.Name, "versions": d.Versions, "platform": d.Info.Platform,
		"inputs": describeTensors(d.Info.Inputs), "outputs": describeTensors(d.Info.Outputs),
	})
}

func (h *Handler) ready(w http.ResponseWriter, r *http.Request) {
	ready, err := h.opts.Models.Ready(r.PathValue("model"), r.PathValue("version"))
	switch {
	case err != nil:
		refuse(w, err)
	case !ready:
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"name": r.PathValue("model"), "ready": false})
	default:
		writeJSON(w, http.StatusOK, map[string]any{"name": r.PathValue("model"), "ready": true})
	}
}

// maxBatch returns the most rows of a batch, 0 for a model without a batch dimension.
func maxBatch(d *serve.Description) int {
	if !d.Info.BatchDimension {
		return 0
	}
	return cmp.Or(d.Version.Config.Batching.Max, serve.DefaultMaxBatch)
}

// dimensions returns the dimensions of an input or output in a model's configuration, without the
// batch dimension.
func dimensions(d *serve.Description, s *model.Signature) []int64 {
	if d.Info.BatchDimension && len(s.Shape) > 0 {
		return s.Shape[1:]
	}
	return s.Shape
}

// modelConfig returns a model's configuration as Triton's ModelConfig.
func modelConfig(d *serve.Description) map[string]any {
	c := &d.Version.Config
	tensors := func(list []model.Signature) []map[string]any {
		all := []map[string]any{}
		for i := range list {
			s := &list[i]
			all = append(all, map[string]any{"name": s.Name, "data_type": "TYPE_" + tritonType(s.Type), "dims": dimensions(d, s)})
		}
		return all
	}
	config := map[string]any{
		"name": d.Version.Name, "platform": d.Info.Platform, "backend": d.Version.Engine, "max_batch_size": maxBatch(d),
		"input": tensors(d.Info.Inputs), "output": tensors(d.Info.Outputs),
		"instance_group": []map[string]any{{"name": d.Version.Name, "kind": "KIND_CPU", "count": max(c.Instances, 1)}},
	}
	if maxBatch(d) > 1 {
		config["dynamic_batching"] = map[string]any{
			"preferred_batch_size": append([]int{}, c.Batching.Preferred...), "max_queue_delay_microseconds": time.Duration(c.Batching.Delay).Microseconds(),
		}
	}
	return config
}

// tritonType returns the name of a data type in Triton's model configuration.
func tritonType(t model.DataType) string {
	if t == model.Bytes {
		return "STRING"
	}
	return t.String()
}

func (h *Handler) config(w http.ResponseWriter, r *http.Request) {
	d, err := h.opts.Models.Describe(r.Context(), r.PathValue("model"), r.PathValue("version"))
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, modelConfig(d))
}

// index implements the model repository extension's index.
func (h *Handler) index(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Ready bool `json:"ready"`
	}
	if err := readSmall(r.Body, &q); err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, h.indexEntries(r.Context(), q.Ready))
}

func (h *Handler) load(w http.ResponseWriter, r *http.Request) {
	if err := h.opts.Administer(r.Context()); err != nil {
		refuse(w, err)
		return
	}
	if err := readLoad(r.Body); err != nil {
		refuse(w, err)
		return
	}
	if err := h.opts.Models.Load(r.Context(), r.PathValue("model"), ""); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (h *Handler) unload(w http.ResponseWriter, r *http.Request) {
	if err := h.opts.Administer(r.Context()); err != nil {
		refuse(w, err)
		return
	}
	if err := readLoad(r.Body); err != nil {
		refuse(w, err)
		return
	}
	if err := h.opts.Models.Unload(r.PathValue("model")); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// readLoad reads the parameters of a request to load or unload a model. It refuses those that have no
// effect.
func readLoad(body io.Reader) error {
	var q struct {
		Parameters parameters `json:"parameters"`
	}
	if err := readSmall(body, &q); err != nil {
		return err
	}
	return checkLoadParameters(q.Parameters)
}

// checkLoadParameters refuses parameters of a request to load or unload a model.
func checkLoadParameters[T any](parameters map[string]T) error {
	for p := range parameters {
		if p != "unload_dependents" { // no model depends on another
			return outboard.Errorf(outboard.Invalid, "", "parameter %q: a model is configured when it is pushed", p)
		}
	}
	return nil
}

// maxSmall bounds a request without tensors, in bytes.
const maxSmall = 1 << 20

// readSmall reads a JSON body that may be empty.
func readSmall(body io.Reader, into any) error {
	text, err := io.ReadAll(io.LimitReader(body, maxSmall))
	if err != nil || len(text) == 0 {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errJSON("request", err)
	}
	return nil
}
