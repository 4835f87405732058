package oip

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/model/serve"
)

func (s *grpcService) modelInfer(ctx context.Context, q *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	if err := s.opts.Allow(ctx, q.GetModelName()); err != nil {
		return nil, err
	}
	held := reservation{opts: &s.opts}
	defer held.release()
	r, err := s.grpcRequest(ctx, q, &held)
	if err != nil {
		return nil, err
	}
	response, err := s.opts.Models.Infer(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.grpcResponse(ctx, q, response)
}

// parametersOf converts the parameters of a message to those of REST, nil if there are none.
func parametersOf(all map[string]*inference.InferParameter) (map[string]json.RawMessage, error) {
	var list map[string]json.RawMessage
	for name, p := range all {
		var value any
		switch v := p.GetParameterChoice().(type) {
		case *inference.InferParameter_BoolParam:
			value = v.BoolParam
		case *inference.InferParameter_Int64Param:
			value = v.Int64Param
		case *inference.InferParameter_StringParam:
			value = v.StringParam
		case *inference.InferParameter_DoubleParam:
			value = v.DoubleParam
		case *inference.InferParameter_Uint64Param:
			value = v.Uint64Param
		default:
			return nil, outboard.Errorf(outboard.Invalid, "infer", "parameter %q has no value", name)
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, outboard.Errorf(outboard.Invalid, "infer", "parameter %q: %w", name, err)
		}
		if list == nil {
			list = map[string]json.RawMessage{}
		}
		list[name] = text
	}
	return list, nil
}

// grpcRequest converts a request. Raw contents are not copied; the copies of other data are held.
func (s *grpcService) grpcRequest(ctx context.Context, q *inference.ModelInferRequest, held *reservation) (*serve.Request, error) {
	r := &serve.Request{Model: q.GetModelName(), Version: q.GetModelVersion(), ID: q.GetId()}
	if len(q.GetInputs()) > maxTensors || len(q.GetOutputs()) > maxTensors {
		return nil, outboard.Errorf(outboard.Invalid, "infer", "%d inputs and %d outputs: at most %d are allowed", len(q.GetInputs()), len(q.GetOutputs()), maxTensors)
	}
	parameters, err := parametersOf(q.GetParameters())
	if err == nil {
		err = s.readParameters(ctx, parameters, r)
	}
	if err != nil {
		return nil, err
	}
	raw := q.GetRawInputContents()
	for _, in := range q.GetInputs() {
		t, err := s.grpcInput(ctx, in, &raw, len(q.GetRawInputContents()) > 0, held)
		if err != nil {
			return nil, inputError(in.GetName(), err)
		}
		r.Inputs = append(r.Inputs, t)
	}
	if len(raw) > 0 {
		return nil, outboard.Errorf(outboard.Invalid, "infer", "raw_input_contents has %d entries more than there are inputs", len(raw))
	}
	for _, out := range q.GetOutputs() {
		r.Outputs = append(r.Outputs, out.GetName())
	}
	return r, nil
}

// grpcInput converts an input. Its data are the first entry of raw if the request has raw contents,
// and otherwise in shared memory or typed contents.
func (s *grpcService) grpcInput(ctx context.Context, in *inference.ModelInferRequest_InferInputTensor, raw *[][]byte, isRaw bool, held *reservation) (model.Tensor, error) {
	kind, err := model.ParseDataType(in.GetDatatype())
	if err != nil {
		return model.Tensor{}, err
	}
	t := model.Tensor{Name: in.GetName(), Type: kind, Shape: in.GetShape()}
	n, ok := model.Elements(t.Shape)
	if !ok || len(t.Shape) > maxRank {
		return t, outboard.Errorf(outboard.Invalid, "", "shape %v", t.Shape)
	}
	parameters, err := parametersOf(in.GetParameters())
	if err != nil {
		return t, err
	}
	region, shared, err := readRegion(parameters)
	switch {
	case err != nil:
		return t, err
	case shared:
		t.Data, err = s.regions.read(ctx, &region, held)
		return t, err
	case isRaw && in.GetContents() != nil:
		return t, outboard.Errorf(outboard.Invalid, "", "it has contents, and the request has raw_input_contents: use one of them")
	case isRaw && len(*raw) == 0:
		return t, outboard.Errorf(outboard.Invalid, "", "raw_input_contents has no entry for it")
	case isRaw:
		t.Data, *raw = (*raw)[0], (*raw)[1:]
		return t, nil
	}
	t.Data, err = inference.TypedData(in.GetContents(), kind, n)
	return t, err
}

// grpcResponse converts a response: with typed contents if the request has them, otherwise with raw
// contents.
func (s *grpcService) grpcResponse(ctx context.Context, q *inference.ModelInferRequest, response *serve.Response) (*inference.ModelInferResponse, error) {
	reply := &inference.ModelInferResponse{ModelName: response.Model, ModelVersion: strconv.Itoa(response.Version), Id: q.GetId()}
	typed := isTyped(q)
	for i := range response.Outputs {
		typed = typed && response.Outputs[i].Type != model.FP16 && response.Outputs[i].Type != model.BF16
	}
	for _, t := range response.Outputs {
		parameters, err := requestedOf(q, t.Name)
		if err != nil {
			return nil, err
		}
		if t, err = classify(t, parameters); err != nil {
			return nil, err
		}
		out := &inference.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.Type.String(), Shape: t.Shape}
		reply.Outputs = append(reply.Outputs, out)
		region, shared, err := readRegion(parameters)
		switch {
		case err != nil:
			return nil, err
		case shared:
			if err := s.regions.write(ctx, &region, t.Data); err != nil {
				return nil, outboard.Errorf(outboard.Invalid, "infer", "output %q: %w", t.Name, err)
			}
			out.Parameters = region.message()
		case typed:
			if out.Contents, err = inference.ContentsOf(&t); err != nil {
				return nil, err
			}
		default:
			reply.RawOutputContents = append(reply.RawOutputContents, t.Data)
		}
	}
	return reply, nil
}

// isTyped reports whether a request has typed contents.
func isTyped(q *inference.ModelInferRequest) bool {
	for _, in := range q.GetInputs() {
		if in.GetContents() != nil {
			return true
		}
	}
	return false
}

// requestedOf returns the parameters of a request for an output.
func requestedOf(q *inference.ModelInferRequest, name string) (map[string]json.RawMessage, error) {
	for _, out := range q.GetOutputs() {
		if out.GetName() == name {
			return parametersOf(out.GetParameters())
		}
	}
	return nil, nil
}

// maxStreamed is the number of requests of one stream that are executed concurrently.
const maxStreamed = 16

// modelStreamInfer executes the requests of a stream concurrently and answers them in their order.
// The error of a request is its answer, after which the stream continues. The memory of the
// requests and responses of all connections' streams is bounded: a stream with much in flight is
// not read, and a request beyond the bound is refused.
func (s *grpcService) modelStreamInfer(_ any, stream grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	share := newStreamShare(&s.streamed)
	answers := make(chan chan streamedAnswer, maxStreamed)
	received := make(chan error, 1)
	go func() {
		defer close(answers)
		received <- s.receiveStream(ctx, stream, share, answers)
	}()
	var failed error
	for answer := range answers {
		a := <-answer
		if failed == nil {
			failed = stream.SendMsg(a.reply)
		}
		share.release(a.bytes)
		if failed != nil {
			cancel()
			share.close()
		}
	}
	err := <-received
	if failed != nil {
		return failed
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A streamedAnswer is the answer to a request of a stream, with the size of both in bytes.
type streamedAnswer struct {
	reply *inference.ModelStreamInferResponse
	bytes int64
}

// receiveStream receives and starts the requests of a stream until it ends.
func (s *grpcService) receiveStream(ctx context.Context, stream grpc.ServerStream, share *streamShare, answers chan<- chan streamedAnswer) error {
	order := sequenceOrder{}
	for first := true; share.wait(); first = false {
		q := new(inference.ModelInferRequest)
		message := bounded.NewMessage(q)
		if err := stream.RecvMsg(message); err != nil {
			return err
		}
		size, refused := decodedSize(q), message.Refused()
		if refused == nil && !first { // the call itself was admitted as a request
			if refused = s.opts.Readmit(ctx); outboard.KindOf(refused) == outboard.Denied && refused != nil {
				return RefusalStatus(refused)
			}
		}
		if refused == nil {
			refused = share.reserve(size)
		}
		answer := make(chan streamedAnswer, 1)
		select {
		case answers <- answer:
		case <-ctx.Done():
			if refused == nil {
				share.release(size)
			}
			return ctx.Err()
		}
		if refused != nil {
			answer <- streamedAnswer{reply: streamError(q, refused)}
			continue
		}
		before, done := order.join(q)
		go func() {
			defer close(done)
			before.wait(ctx)
			reply := s.streamAnswer(ctx, q)
			own := int64(proto.Size(reply))
			share.add(own)
			answer <- streamedAnswer{reply, size + own}
		}()
	}
	return ctx.Err()
}

// decodedSize returns about the memory that a request takes, in bytes.
func decodedSize(q *inference.ModelInferRequest) int64 {
	size := proto.Size(q)
	for _, in := range q.GetInputs() {
		c := in.GetContents()
		size += 4*(len(c.GetIntContents())+len(c.GetUintContents())) + 8*(len(c.GetInt64Contents())+len(c.GetUint64Contents())) + 24*len(c.GetBytesContents())
	}
	return int64(size)
}

// A sequenceOrder holds, for each sequence of a stream, the end of its last request: requests of a
// sequence are executed in the order of their arrival. Ended requests are removed.
type sequenceOrder map[string]ended

// ended is closed when a request has been executed; a nil channel counts as closed.
type ended chan struct{}

// join adds a request, and returns the end of its predecessor in its sequence and its own, which
// the caller closes.
func (o sequenceOrder) join(q *inference.ModelInferRequest) (before, own ended) {
	own = make(ended)
	id := sequenceOf(q)
	if id == "" {
		return nil, own
	}
	maps.DeleteFunc(o, func(_ string, e ended) bool { return e.isClosed() })
	before = o[id]
	o[id] = own
	return before, own
}

// sequenceOf returns the name of a request's sequence, "" if it has none.
func sequenceOf(q *inference.ModelInferRequest) string {
	var sequence serve.Sequence
	parameters, err := parametersOf(q.GetParameters())
	if err != nil || readSequence(parameters, &sequence) != nil {
		return "" // the request will be refused
	}
	return sequence.ID
}

func (e ended) isClosed() bool {
	select {
	case <-e:
		return true
	default:
		return false
	}
}

func (e ended) wait(ctx context.Context) {
	if e == nil {
		return
	}
	select {
	case <-e:
	case <-ctx.Done():
	}
}

func (s *grpcService) streamAnswer(ctx context.Context, q *inference.ModelInferRequest) *inference.ModelStreamInferResponse {
	reply, err := s.modelInfer(ctx, q)
	if err != nil {
		return streamError(q, err)
	}
	return &inference.ModelStreamInferResponse{InferResponse: reply}
}

// streamError returns the answer to a request that failed.
func streamError(q *inference.ModelInferRequest, err error) *inference.ModelStreamInferResponse {
	return &inference.ModelStreamInferResponse{
		ErrorMessage: err.Error(), InferResponse: &inference.ModelInferResponse{ModelName: q.GetModelName(), ModelVersion: q.GetModelVersion(), Id: q.GetId()},
	}
}
