package oip

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// lengthHeader is the header with the length of the JSON before binary tensors.
const lengthHeader = "Inference-Header-Content-Length"

// An inferRequest is the JSON of a request.
type inferRequest struct {
	ID         string        `json:"id"`
	Parameters parameters    `json:"parameters"`
	Inputs     []inferInput  `json:"inputs"`
	Outputs    []inferOutput `json:"outputs"`
}

type inferInput struct {
	Name       string              `json:"name"`
	Type       string              `json:"datatype"`
	Shape      bounded.List[int64] `json:"shape"`
	Parameters parameters          `json:"parameters"`
	Data       json.RawMessage     `json:"data"`
}

type inferOutput struct {
	Name       string     `json:"name"`
	Parameters parameters `json:"parameters"`
}

type parameters = bounded.Map[json.RawMessage]

// Limits of a request.
const (
	maxTensors = 1024
	maxRank    = 32
	// maxMembers is the most members and elements of the JSON, but for those of parameters, shapes and
	// data.
	maxMembers = 16 * maxTensors
)

// parameter decodes a parameter. ok is false if there is none.
func parameter[T any](all map[string]json.RawMessage, name string) (v T, ok bool, err error) {
	text, ok := all[name]
	if !ok {
		return v, false, nil
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, true, outboard.Errorf(outboard.Invalid, "infer", "parameter %q is %.40s: want %T", name, text, v)
	}
	return v, true, nil
}

func (h *Handler) infer(w http.ResponseWriter, r *http.Request) {
	target := serve.Request{Model: r.PathValue("model"), Version: r.PathValue("version"), Sequence: serve.Sequence{Client: h.opts.CacheScope(r.Context())}}
	q, err := h.receive(w, r, &target)
	if refused, ok := errors.AsType[*refusal](err); ok {
		answerUnread(w, r, !refused.begun && r.Header.Get("Expect") != "", func(w http.ResponseWriter) { refuse(w, refused.error) })
		return
	}
	if err != nil {
		refuse(w, err)
		return
	}
	defer h.tensors.Put(q.buffer) // Infer has returned, and the outputs are written.
	held := reservation{opts: &h.opts}
	defer held.release()
	request, err := h.request(r.Context(), q, &held)
	if err != nil {
		refuse(w, err)
		return
	}
	request.Model, request.Version = target.Model, target.Version
	response, err := h.opts.Models.Infer(r.Context(), request)
	if err != nil {
		refuse(w, err)
		return
	}
	if err = held.addOutputs(r.Context(), response.Outputs); err == nil {
		err = h.writeResponse(r.Context(), w, q, response, &held)
	}
	if err != nil {
		refuse(w, err)
	}
}

// readBody reads a body, with one allocation if its length is known.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return readAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
}

// checkEncoding refuses a compressed body.
func checkEncoding(r *http.Request) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return outboard.Errorf(outboard.Invalid, "infer", "the body has the Content-Encoding %.40q: send it without compression, or use gRPC", e)
	}
	return nil
}

// readAll reads to the end of a body, of whose bytes about left are expected.
func readAll(in io.Reader, left int64) ([]byte, error) {
	var body bytes.Buffer
	if left > 0 && left <= 16<<20 {
		body.Grow(int(left) + bytes.MinRead) // larger buffers grow as data arrive
	}
	_, err := body.ReadFrom(in)
	return body.Bytes(), errBody(err)
}

// errBody returns the error of a body that can't be read.
func errBody(err error) error {
	if err == nil || outboard.KindOf(err) == outboard.Busy {
		return err
	}
	return outboard.Errorf(outboard.Invalid, "infer", "read the request: %w", err)
}

// A parsedRequest is a request with its binary part.
type parsedRequest struct {
	inferRequest
	binary []byte
	buffer *buffers.Buffer // of binary; nil: it lies in the heap
}

// parseInfer splits a body into JSON and binary tensors. length is the value of lengthHeader, "" if
// the whole body is JSON.
func parseInfer(body []byte, length string) (*parsedRequest, error) {
	if length == "" {
		return parseHead(body)
	}
	n, err := parseLength(length, int64(len(body)))
	if err != nil {
		return nil, err
	}
	q, err := parseHead(body[:n])
	if err == nil {
		q.binary = body[n:]
	}
	return q, err
}

// parseLength parses the value of lengthHeader for a body of size bytes.
func parseLength(length string, size int64) (int64, error) {
	n, err := strconv.ParseInt(length, 10, 63)
	if err != nil || n < 0 || n > size {
		return 0, outboard.Errorf(outboard.Invalid, "infer", "header %s is %.40q, and the body has %d bytes", lengthHeader, length, size)
	}
	return n, nil
}

// parseHead parses the JSON of a request.
func parseHead(text []byte) (*parsedRequest, error) {
	if err := bounded.Members(text, 3, maxMembers); err != nil {
		return nil, err
	}
	q := &parsedRequest{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&q.inferRequest); err != nil {
		return nil, errJSON("infer", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, outboard.Errorf(outboard.Invalid, "infer", "something follows the JSON of the request: binary tensors need the header %s", lengthHeader)
	}
	if len(q.Inputs) > maxTensors || len(q.Outputs) > maxTensors {
		return nil, outboard.Errorf(outboard.Invalid, "infer", "%d inputs and %d outputs: at most %d are allowed", len(q.Inputs), len(q.Outputs), maxTensors)
	}
	return q, nil
}

// errJSON returns the error of a body that can't be decoded, which names the member in the terms of JSON.
func errJSON(op string, err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return outboard.Errorf(outboard.Invalid, op, "the body is not the protocol's JSON: %w", err)
	case wrong.Field == "":
		return outboard.Errorf(outboard.Invalid, op, "the body is not the protocol's JSON: it has the type %s, not object", wrong.Value)
	}
	return outboard.Errorf(outboard.Invalid, op, "the body is not the protocol's JSON: member %q has the type %s", wrong.Field, wrong.Value)
}

// request converts a request. Binary data are not copied; the copies of other data are held.
func (h *Handler) request(ctx context.Context, q *parsedRequest, held *reservation) (*serve.Request, error) {
	r := &serve.Request{ID: q.ID}
	if err := h.readParameters(ctx, q.Parameters, r); err != nil {
		return nil, err
	}
	rest := q.binary
	for i := range q.Inputs {
		t, err := h.input(ctx, &q.Inputs[i], &rest, held)
		if err != nil {
			return nil, inputError(q.Inputs[i].Name, err)
		}
		r.Inputs = append(r.Inputs, t)
	}
	if len(rest) > 0 {
		return nil, outboard.Errorf(outboard.Invalid, "infer", "%d bytes follow the binary data of the inputs", len(rest))
	}
	for i := range q.Outputs {
		r.Outputs = append(r.Outputs, q.Outputs[i].Name)
	}
	return r, nil
}

// inputError returns the error of an input, which is the request's fault unless the node is busy.
func inputError(name string, err error) error {
	kind := outboard.Invalid
	if outboard.KindOf(err) == outboard.Busy {
		kind = outboard.Busy
	}
	return outboard.Errorf(kind, "infer", "input %q: %w", name, err)
}

// readParameters reads the parameters of the request itself, not of its tensors.
func (h *Handler) readParameters(ctx context.Context, parameters map[string]json.RawMessage, r *serve.Request) error {
	if err := readPolicy(parameters, r); err != nil {
		return err
	}
	r.Sequence.Client = h.opts.CacheScope(ctx)
	return readSequence(parameters, &r.Sequence)
}

// maxSequenceID is the most bytes of a sequence's name.
const maxSequenceID = 128

// readSequence reads the parameters of the extension sequence: sequence_id, a number or a text, of
// which 0 and "" stand for none, and the booleans sequence_start and sequence_end.
func readSequence(parameters map[string]json.RawMessage, q *serve.Sequence) error {
	var err error
	if text := parameters["sequence_id"]; len(text) > 0 && text[0] == '"' {
		q.ID, _, err = parameter[string](parameters, "sequence_id")
	} else if n, _, failed := parameter[uint64](parameters, "sequence_id"); failed != nil {
		err = failed
	} else if n > 0 {
		q.ID = strconv.FormatUint(n, 10)
	}
	if err != nil {
		return err
	}
	if len(q.ID) > maxSequenceID {
		return outboard.Errorf(outboard.Invalid, "infer", "parameter \"sequence_id\" has %d bytes: at most %d are allowed", len(q.ID), maxSequenceID)
	}
	if q.Start, _, err = parameter[bool](parameters, "sequence_start"); err != nil {
		return err
	}
	if q.End, _, err = parameter[bool](parameters, "sequence_end"); err != nil {
		return err
	}
	if q.ID == "" && (q.Start || q.End) {
		return outboard.Errorf(outboard.Invalid, "infer", "sequence_start and sequence_end need the parameter \"sequence_id\"")
	}
	return nil
}

// readPolicy reads the parameters of the extension schedule_policy. Triton's highest priority is 1.
func readPolicy(parameters map[string]json.RawMessage, r *serve.Request) error {
	priority, _, err := parameter[int32](parameters, "priority")
	if err != nil {
		return err
	}
	if priority < 0 {
		return outboard.Errorf(outboard.Invalid, "infer", "parameter \"priority\" is %d: 1 is the highest, 0 the default", priority)
	}
	timeout, _, err := parameter[uint32](parameters, "timeout")
	r.Priority, r.Timeout = priorityOf(int64(priority)), time.Duration(timeout)*time.Microsecond
	return err
}

// priorityOf converts a priority of Triton, where 1 is the highest and 0 the default, to a priority
// where higher is first.
func priorityOf(p int64) int {
	if p <= 0 {
		return 0
	}
	return int(max(1, 1<<20-min(p, 1<<20)))
}

// input converts an input. It takes the input's binary data from the beginning of rest.
func (h *Handler) input(ctx context.Context, in *inferInput, rest *[]byte, held *reservation) (model.Tensor, error) {
	kind, err := model.ParseDataType(in.Type)
	if err != nil {
		return model.Tensor{}, err
	}
	t := model.Tensor{Name: in.Name, Type: kind, Shape: in.Shape}
	n, ok := model.Elements(in.Shape)
	if !ok || len(in.Shape) > maxRank {
		return t, fmt.Errorf("shape %v", in.Shape)
	}
	size, binary, err := parameter[uint64](in.Parameters, "binary_data_size")
	if err != nil {
		return t, err
	}
	region, shared, err := readRegion(in.Parameters)
	switch {
	case err != nil:
		return t, err
	case shared:
		t.Data, err = h.regions.read(ctx, &region, held)
		return t, err
	case binary && len(in.Data) > 0:
		return t, fmt.Errorf("it has both data and binary_data_size")
	case binary && size > uint64(len(*rest)):
		return t, fmt.Errorf("binary_data_size is %d, and %d bytes are left: the body is truncated", size, len(*rest))
	case binary:
		t.Data, *rest = (*rest)[:size:size], (*rest)[size:]
		return t, nil
	case len(in.Data) == 0:
		return t, fmt.Errorf("it has no data")
	}
	t.Data, err = parseData(in.Data, kind, in.Shape, n)
	return t, err
}

// writeResponse writes the outputs as JSON or binary, as the request specifies for each output. The
// JSON is held.
func (h *Handler) writeResponse(ctx context.Context, w http.ResponseWriter, q *parsedRequest, response *serve.Response, held *reservation) error {
	all, _, err := parameter[bool](q.Parameters, "binary_data_output")
	if err != nil {
		return err
	}
	var head []byte
	head = append(head, `{"model_name":`...)
	head = appendString(head, response.Model)
	head = append(head, `,"model_version":"`...)
	head = strconv.AppendInt(head, int64(response.Version), 10)
	head = append(head, '"')
	if q.ID != "" {
		head = append(head, `,"id":`...)
		head = appendString(head, q.ID)
	}
	head = append(head, `,"outputs":[`...)
	var binary [][]byte
	for i := range response.Outputs {
		if i > 0 {
			head = append(head, ',')
		}
		var data []byte
		before := len(head)
		if head, data, err = h.appendOutput(ctx, head, q, &response.Outputs[i], all); err != nil {
			return err
		}
		if n := len(head) - before; n > freeResponse {
			if err := held.addResponse(ctx, int64(n)); err != nil {
				return err
			}
		}
		if data != nil {
			binary = append(binary, data)
		}
	}
	head = append(head, "]}"...)
	writeParts(w, head, binary)
	return nil
}

// appendOutput appends an output to the JSON of a response. It returns the output's data if they
// follow the JSON; asBinary determines that for outputs for which the request does not.
func (h *Handler) appendOutput(ctx context.Context, head []byte, q *parsedRequest, output *model.Tensor, asBinary bool) (_, binary []byte, err error) {
	wanted := requested(q, output.Name)
	t, err := classify(*output, wanted)
	if err != nil {
		return nil, nil, err
	}
	if asked, ok, err := parameter[bool](wanted, "binary_data"); err != nil {
		return nil, nil, err
	} else if ok {
		asBinary = asked
	}
	region, shared, err := readRegion(wanted)
	if err != nil {
		return nil, nil, err
	}
	head = appendTensorHead(head, &t)
	switch {
	case shared:
		if err := h.regions.write(ctx, &region, t.Data); err != nil {
			return nil, nil, outboard.Errorf(outboard.Invalid, "infer", "output %q: %w", t.Name, err)
		}
		head = append(head, region.json()...)
	case asBinary:
		head = append(head, `,"parameters":{"binary_data_size":`...)
		head = strconv.AppendInt(head, int64(len(t.Data)), 10)
		head = append(head, '}')
		if binary = t.Data; binary == nil {
			binary = []byte{}
		}
	default:
		head = append(head, `,"data":`...)
		if head, err = appendData(head, &t); err != nil {
			return nil, nil, err
		}
	}
	return append(head, '}'), binary, nil
}

// writeParts writes the JSON of a response, and the binary data that follow it. It ignores errors,
// which mean that the client has disconnected.
func writeParts(w http.ResponseWriter, head []byte, binary [][]byte) {
	size := len(head)
	for _, b := range binary {
		size += len(b)
	}
	w.Header().Set("Content-Type", "application/json")
	if len(binary) > 0 {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(lengthHeader, strconv.Itoa(len(head)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(size))
	_, err := w.Write(head)
	for _, b := range binary {
		if err == nil {
			_, err = w.Write(b)
		}
	}
}

// requested returns the parameters of a request for an output.
func requested(q *parsedRequest, name string) map[string]json.RawMessage {
	for i := range q.Outputs {
		if q.Outputs[i].Name == name {
			return q.Outputs[i].Parameters
		}
	}
	return nil
}

func appendTensorHead(b []byte, t *model.Tensor) []byte {
	b = append(b, `{"name":`...)
	b = appendString(b, t.Name)
	b = append(b, `,"datatype":"`...)
	b = append(b, t.Type.String()...)
	b = append(b, `","shape":[`...)
	for i, d := range t.Shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return append(b, ']')
}

func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return append(b, `""`...)
	}
	return append(b, text...)
}
