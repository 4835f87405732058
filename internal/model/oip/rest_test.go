package oip_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// echo is a node with two models, "echo" and "other", that return their inputs.
type echo struct {
	mu       sync.Mutex // of last, while calls run
	last     *serve.Request
	unloaded string
	err      error
	refuse   func(r *serve.Request, rows int) error // nil: no request is refused early
}

func (e *echo) find(name string) (*repository.Version, error) {
	if name != "echo" && name != "other" {
		return nil, outboard.Errorf(outboard.NotFound, "", "there is no model %q", name)
	}
	return &repository.Version{Name: name, Number: 3, Engine: "fake"}, nil
}

func (e *echo) Infer(_ context.Context, r *serve.Request) (*serve.Response, error) {
	if _, err := e.find(r.Model); err != nil || e.err != nil {
		return nil, outboard.Errorf(outboard.KindOf(err)|outboard.KindOf(e.err), "", "refused")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = r
	return &serve.Response{Model: r.Model, Version: 3, Outputs: r.Inputs}, nil
}

func (e *echo) Refuse(r *serve.Request, rows int) error {
	if e.refuse == nil {
		return nil
	}
	return e.refuse(r, rows)
}

func (e *echo) Describe(_ context.Context, name, _ string) (*serve.Description, error) {
	v, err := e.find(name)
	sig := []model.Signature{{Name: "x", Type: model.FP32, Shape: []int64{-1, 2}}}
	return &serve.Description{Version: v, Versions: []string{"3"}, Info: engine.Info{Platform: "fake", Inputs: sig, Outputs: sig, BatchDimension: true}}, err
}

func (e *echo) Ready(name, _ string) (bool, error) {
	_, err := e.find(name)
	return name == "echo", err
}

func (e *echo) Index() []serve.Index {
	return []serve.Index{
		{Version: repository.Version{Name: "echo", Number: 3}, State: serve.StateReady},
		{Version: repository.Version{Name: "other", Number: 1}, State: serve.StateFailed, Reason: "broken"},
	}
}

func (e *echo) Stats() []serve.ModelStats {
	return []serve.ModelStats{{Name: "echo", Version: 3, Stats: queue.Stats{}}, {Name: "other", Version: 1}}
}

func (e *echo) Load(_ context.Context, name, _ string) error {
	_, err := e.find(name)
	return err
}

func (e *echo) Unload(name string) error {
	e.unloaded = name
	return nil
}

func (e *echo) OpenText(context.Context, string, string, serve.Prompt, ...outboard.NodeID) (*serve.Text, func(), error) {
	return nil, nil, outboard.Errorf(outboard.Invalid, "", "the model is for tensors")
}

// send has a handler answer a request.
func send(t *testing.T, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const pair = `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2.5]}]}`

func TestRoutes(t *testing.T) {
	h := oip.New(oip.Options{Models: &echo{}, Version: "9"})
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v2", "", 200, `"version":"9"`},
		{"GET", "/v2/health/live", "", 200, "true"},
		{"GET", "/v2/health/ready", "", 200, "true"},
		{"GET", "/v2/models/echo", "", 200, `"inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}]`},
		{"GET", "/v2/models/echo/versions/3", "", 200, `"versions":["3"]`},
		{"GET", "/v2/models/echo/ready", "", 200, `"ready":true`},
		{"GET", "/v2/models/other/ready", "", 503, `"ready":false`},
		{"GET", "/v2/models/none/ready", "", 404, "error"},
		{"GET", "/v2/models/none", "", 404, "error"},
		{"GET", "/v2/models/echo/config", "", 200, `"max_batch_size":32`},
		{"GET", "/v2/models/echo/config", "", 200, `"preferred_batch_size":[]`},
		{"GET", "/v2/models/echo/stats", "", 200, `"name":"echo"`},
		{"GET", "/v2/models/stats", "", 200, `"name":"other"`},
		{"POST", "/v2/repository/index", "", 200, `"reason":"broken"`},
		{"POST", "/v2/repository/index", `{"ready":true}`, 200, `[{"name":"echo","version":"3","state":"READY"}]`},
		{"POST", "/v2/repository/models/echo/load", "{}", 200, ""},
		{"POST", "/v2/repository/models/echo/load", `{"parameters":{"config":"{}"}}`, 400, "config"},
		{"POST", "/v2/repository/models/echo/unload", `{"parameters":{"unload_dependents":true}}`, 200, ""},
		{"POST", "/v2/repository/models/none/load", "", 404, "error"},
		{"POST", "/v2/repository/models/echo/load", "nonsense", 400, "error"},
		{"POST", "/v2/models/echo/infer", pair, 200, `"data":[1,2.5]`},
		{"POST", "/v2/models/none/infer", pair, 404, "error"},
		{"POST", "/v2/models/echo/generate", `{"text_input":"x"}`, 422, "for tensors"},
		{"POST", "/v2/models/echo", "", 404, "no such route"},
		{"GET", "/v2/systemsharedmemory/status", "", 400, "--models-shm"},
	} {
		w := send(t, h, c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.method, c.path, w.Code, w.Body, c.status, c.want)
		}
		if w.Body.Len() > 0 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %q is no JSON", c.method, c.path, w.Body)
		}
	}
}

func TestInferRefusesMalformedRequests(t *testing.T) {
	h := oip.New(oip.Options{Models: &echo{}, MaxBody: 1 << 12})
	input := func(rest string) string { return `{"inputs":[{"name":"x",` + rest + `}]}` }
	for name, c := range map[string]struct {
		body, length string
		status       int
	}{
		"no JSON":          {"x", "", 400},
		"two values":       {pair + pair, "", 400},
		"length too large": {pair, "9999", 400},
		"length negative":  {pair, "-1", 400},
		"unknown type":     {input(`"datatype":"FP8","shape":[1],"data":[1]`), "", 400},
		"priority":         {`{"parameters":{"priority":-1},` + pair[1:], "", 400},
		"too few":          {input(`"datatype":"FP32","shape":[3],"data":[1]`), "", 400},
		"too many":         {input(`"datatype":"FP32","shape":[1],"data":[1,2]`), "", 400},
		"not as the shape": {input(`"datatype":"FP32","shape":[2,3],"data":[[1,2],[3,4],[5,6]]`), "", 400},
		"ragged":           {input(`"datatype":"FP32","shape":[2,2],"data":[[1,2,3],[4]]`), "", 400},
		"partly nested":    {input(`"datatype":"FP32","shape":[2,2],"data":[[1,2],3,4]`), "", 400},
		"nested later":     {input(`"datatype":"FP32","shape":[2,2],"data":[1,2,[3,4]]`), "", 400},
		"negative shape":   {input(`"datatype":"FP32","shape":[-1],"data":[1]`), "", 400},
		"overflow":         {input(`"datatype":"FP32","shape":[4294967296,4294967296,16],"data":[1]`), "", 400},
		"no data":          {input(`"datatype":"FP32","shape":[1]`), "", 400},
		"out of range":     {input(`"datatype":"UINT8","shape":[1],"data":[256]`), "", 400},
		"text as number":   {input(`"datatype":"FP32","shape":[1],"data":["1"]`), "", 400},
		"truncated binary": {input(`"datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}`), "", 400},
		"shared memory":    {input(`"datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}`), "", 400},
		"sequence as list": {`{"parameters":{"sequence_id":[1]},"inputs":[]}`, "", 400},
		"start of none":    {`{"parameters":{"sequence_id":0,"sequence_start":true},"inputs":[]}`, "", 400},
		"long sequence":    {`{"parameters":{"sequence_id":"` + strings.Repeat("x", 129) + `"},"inputs":[]}`, "", 400},
		"identifier":       {`{"id":7,` + pair[1:], "", 400},
		"a list":           {"[" + pair + "]", "", 400},
		"too long":         {strings.Repeat(" ", 1<<13), "", 413},
	} {
		w := send(t, h, "POST", "/v2/models/echo/infer", c.body, "Inference-Header-Content-Length", c.length)
		if w.Code != c.status || !strings.Contains(w.Body.String(), `"error"`) || strings.Contains(w.Body.String(), " Go ") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// Nested data are flattened: also those of a shape with more or fewer dimensions, and of no elements.
func TestNestedData(t *testing.T) {
	for name, c := range map[string]struct{ shape, data, want string }{
		"as the shape":      {"[2,2,1]", "[[[1],[2]],[[3],[4]]]", "[1,2,3,4]"},
		"flat":              {"[2,2]", "[1,2,3,4]", "[1,2,3,4]"},
		"without the batch": {"[1,2,2]", "[[1,2],[3,4]]", "[1,2,3,4]"},
		"empty":             {"[2,0]", "[[],[]]", "[]"},
		"empty batch":       {"[0,2]", "[]", "[]"},
	} {
		body := `{"inputs":[{"name":"x","datatype":"FP32","shape":` + c.shape + `,"data":` + c.data + `}]}`
		w := send(t, oip.New(oip.Options{Models: &echo{}}), http.MethodPost, "/v2/models/echo/infer", body)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"data":`+c.want) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

func TestBinaryTensors(t *testing.T) {
	models := &echo{}
	h := oip.New(oip.Options{Models: models})
	head := `{"id":"a","parameters":{"priority":1,"timeout":1500},"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}}],` +
		`"outputs":[{"name":"x","parameters":{"binary_data":true}}]}`
	data := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))
	data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(math.Inf(1))))
	w := send(t, h, "POST", "/v2/models/echo/infer", head+string(data), "Inference-Header-Content-Length", strconv.Itoa(len(head)))
	n, err := strconv.Atoi(w.Header().Get("Inference-Header-Content-Length"))
	if w.Code != 200 || err != nil || n > w.Body.Len() {
		t.Fatalf("%d, %v: %q", w.Code, w.Header(), w.Body)
	}
	if got := w.Body.String()[n:]; got != string(data) {
		t.Errorf("binary output %x, want %x", got, data)
	}
	if !strings.Contains(w.Body.String()[:n], `"id":"a"`) || models.last.Timeout.Microseconds() != 1500 || models.last.Priority <= 0 {
		t.Errorf("%s, %+v", w.Body.String()[:n], models.last)
	}
	// JSON has no infinity.
	plain := strings.Replace(head, `{"binary_data":true}`, `{}`, 1)
	if w := send(t, h, "POST", "/v2/models/echo/infer", plain+string(data), "Inference-Header-Content-Length", strconv.Itoa(len(plain))); w.Code != 400 {
		t.Errorf("infinity as JSON: %d %q", w.Code, w.Body)
	}
}

// A client of Triton may compress bodies: the answer says that this is the mistake.
func TestCompressedBodies(t *testing.T) {
	for encoding, status := range map[string]int{"gzip": 400, "deflate": 400, "identity": 200} {
		w := send(t, oip.New(oip.Options{Models: &echo{}}), http.MethodPost, "/v2/models/echo/infer", pair, "Content-Encoding", encoding)
		if w.Code != status || status == 400 && !strings.Contains(w.Body.String(), "without compression") {
			t.Errorf("%s: status %d: %s", encoding, w.Code, w.Body)
		}
	}
	w := send(t, oip.New(oip.Options{Models: &echo{}}), http.MethodPost, "/v2/models/echo/infer", pair, "Content-Encoding", "gzip", "Inference-Header-Content-Length", "8")
	if w.Code != 400 || !strings.Contains(w.Body.String(), "without compression") {
		t.Errorf("with the length of the JSON: status %d: %s", w.Code, w.Body)
	}
}

func TestErrorsHaveStatus(t *testing.T) {
	for kind, status := range map[outboard.Kind]int{
		outboard.Exhausted: 503, outboard.Unreachable: 503, outboard.Invalid: 400, outboard.Denied: 403, outboard.NotFound: 404, outboard.Other: 500,
	} {
		h := oip.New(oip.Options{Models: &echo{err: outboard.Errorf(kind, "", "refused")}})
		if w := send(t, h, "POST", "/v2/models/echo/infer", pair); w.Code != status {
			t.Errorf("%v: %d, want %d", kind, w.Code, status)
		}
	}
	for kind, status := range map[outboard.Kind]int{outboard.Denied: 401, outboard.Busy: 429} {
		w := httptest.NewRecorder()
		oip.Refuse(w, outboard.Errorf(kind, "", "refused"))
		if w.Code != status || !strings.Contains(w.Body.String(), `"error":"refused"`) {
			t.Errorf("refused with %v: %d %s", kind, w.Code, w.Body)
		}
	}
}

// A client whose key names some models neither uses nor sees the others.
func TestAllow(t *testing.T) {
	models := &echo{}
	h := oip.New(oip.Options{Models: models, Allow: func(_ context.Context, name string) error {
		if name == "echo" {
			return nil
		}
		return outboard.Errorf(outboard.Denied, "", "the key may not use %s", name)
	}})
	if w := send(t, h, "POST", "/v2/models/echo/infer", pair); w.Code != 200 {
		t.Errorf("allowed: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{
		"GET /v2/models/other", "GET /v2/models/other/ready", "GET /v2/models/other/config", "GET /v2/models/other/stats", "GET /v2/models/other/versions/1",
		"POST /v2/models/other/infer", "POST /v2/models/other/versions/1/infer", "POST /v2/models/%6fther/infer", "POST /v2/models/other/generate",
		"POST /v2/models/other/generate_stream", "POST /v2/repository/models/other/load", "POST /v2/repository/models/other/unload",
	} {
		method, path, _ := strings.Cut(path, " ")
		if w := send(t, h, method, path, pair); w.Code != 403 {
			t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
	}
	if models.unloaded != "" {
		t.Errorf("%s was unloaded", models.unloaded)
	}
	for _, path := range []string{"POST /v2/repository/index", "GET /v2/models/stats"} {
		method, path, _ := strings.Cut(path, " ")
		if w := send(t, h, method, path, ""); strings.Contains(w.Body.String(), "other") || !strings.Contains(w.Body.String(), "echo") {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

// Whatever comes, the answer is JSON, and tensors that reach the model have as many bytes as their
// shape says or came as binary data.
func FuzzInfer(f *testing.F) {
	f.Add([]byte(pair), "")
	f.Add([]byte(`{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"data":["a","\u00e9\""]}]}`), "")
	f.Add([]byte(`{"inputs":[{"name":"x","datatype":"FP16","shape":[1,1],"parameters":{"binary_data_size":2}}]}ab`), "96")
	f.Add([]byte(`{"inputs":[{"name":"x","datatype":"INT64","shape":[2,1],"data":[[1],[-2]]}],"outputs":[{"name":"x","parameters":{"classification":1}}]}`), "")
	f.Fuzz(func(t *testing.T, body []byte, length string) {
		models := &echo{}
		w := send(t, oip.New(oip.Options{Models: models, MaxBody: 1 << 16}), "POST", "/v2/models/echo/infer", string(body), "Inference-Header-Content-Length", length)
		if w.Code >= 500 {
			t.Fatalf("%d %q", w.Code, w.Body)
		}
		if w.Header().Get("Inference-Header-Content-Length") == "" && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%d %q is no JSON", w.Code, w.Body)
		}
		if models.last == nil || length != "" {
			return
		}
		for _, in := range models.last.Inputs {
			if n, ok := model.Elements(in.Shape); !ok || in.Type != model.Bytes && len(in.Data) != n*in.Type.Size() {
				t.Fatalf("%v %v with %d bytes", in.Type, in.Shape, len(in.Data))
			}
		}
	})
}
