// Package models lets the functions of a tenant call the models of the pool through their node.
package models

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// Models are the models of the pool. Any number of goroutines may use them.
type Models struct {
	conn     grpc.ClientConnInterface // nil: the process has no node
	close    func() error
	bypasses *bypasses

	mu    sync.Mutex
	known map[string]description
}

// A description is the inputs and outputs of a model, valid until a time.
type description struct {
	inputs, outputs []string
	until           time.Time
}

// Bounds of the cached descriptions.
const (
	descriptionTTL  = 10 * time.Second
	maxDescriptions = 1000
)

// maxMessage bounds a request and a response in bytes, as the node does.
const maxMessage = 256 << 20

// Options configure Dial.
type Options struct {
	// Socket is the node's socket for functions, "" for a process that has no node: every call then
	// fails with the kind Unreachable.
	Socket string
	// Bypass is the socket where the node lets this process call the workers of models itself, ""
	// for none.
	Bypass string
	// Credential is the one that the node gave this process.
	Credential string
	Log        *slog.Logger
}

// Dial returns the models that a node serves.
func Dial(o Options) (*Models, error) {
	if o.Socket == "" {
		return New(nil), nil
	}
	conn, err := fabric.Dial("unix:"+o.Socket, fabric.WithMaxReceive(maxMessage), fabric.WithMaxSend(maxMessage), fabric.WithLogger(o.Log),
		fabric.WithPerRPCCredentials(offer.Credential(o.Credential)))
	if err != nil {
		return nil, err
	}
	m := New(conn)
	m.close, m.bypasses = conn.Close, newBypasses(o.Bypass, o.Credential, o.Log)
	return m, nil
}

// New returns the models behind a connection, which the caller closes; nil is a connection of a
// process that has no node.
func New(conn grpc.ClientConnInterface) *Models {
	return &Models{conn: conn, close: func() error { return nil }, bypasses: newBypasses("", "", nil), known: map[string]description{}}
}

// Close closes the connections that were opened.
func (m *Models) Close() error {
	m.bypasses.close()
	return m.close()
}

// Open returns a model by its name or alias.
func (m *Models) Open(ctx context.Context, name string) (function.Resource, error) {
	d, ok := m.lookup(name)
	if !ok {
		var reply inference.ModelMetadataResponse
		if err := m.call(ctx, "ModelMetadata", &inference.ModelMetadataRequest{Name: name}, &reply); err != nil {
			return nil, err
		}
		d = m.cacheDescription(name, &reply)
	}
	return &model{models: m, name: name, description: d}, nil
}

// Ready reports whether the pool has a model that takes requests.
func (m *Models) Ready(ctx context.Context, name string) bool {
	var reply inference.ModelReadyResponse
	err := m.call(ctx, "ModelReady", &inference.ModelReadyRequest{Name: name}, &reply)
	return err == nil && reply.GetReady()
}

func (m *Models) lookup(name string) (description, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.known[name]
	return d, ok && time.Now().Before(d.until)
}

func (m *Models) cacheDescription(name string, reply *inference.ModelMetadataResponse) description {
	d := description{inputs: names(reply.GetInputs()), outputs: names(reply.GetOutputs()), until: time.Now().Add(descriptionTTL)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxDescriptions {
		clear(m.known)
	}
	m.known[name] = d
	return d
}

func names(list []*inference.ModelMetadataResponse_TensorMetadata) []string {
	var all []string
	for _, t := range list {
		all = append(all, t.GetName())
	}
	return all
}

// call calls a method of the node's service for models.
func (m *Models) call(ctx context.Context, method string, request, reply proto.Message) error {
	if m.conn == nil {
		return errNoNode
	}
	return errorOf(m.conn.Invoke(ctx, "/"+oip.ServiceName+"/"+method, request, reply))
}

var errNoNode = outboard.Errorf(outboard.Unreachable, "", "this process has no node that serves models")

// errorOf returns the error, with its kind, of a call of the node.
func errorOf(err error) error {
	s := status.Convert(err)
	switch s.Code() { //nolint:exhaustive // the others are the node's own failures
	case codes.OK:
		return nil
	case codes.NotFound:
		return outboard.Errorf(outboard.NotFound, "", "%s", s.Message())
	case codes.InvalidArgument:
		return outboard.Errorf(outboard.Invalid, "", "%s", s.Message())
	case codes.PermissionDenied, codes.Unauthenticated:
		return outboard.Errorf(outboard.Denied, "", "%s", s.Message())
	case codes.Unavailable, codes.ResourceExhausted:
		return outboard.Errorf(outboard.Busy, "", "%s", s.Message())
	}
	return outboard.Errorf(outboard.Other, "", "%s", s.Message())
}

// model adapts a model to the resource that a function imports.
type model struct {
	models *Models
	name   string
	description
}

var _ function.Model = (*model)(nil)

// Release implements function.Resource.
func (*model) Release() {}

// Inputs implements function.Model.
func (m *model) Inputs() []string { return m.inputs }

// Outputs implements function.Model.
func (m *model) Outputs() []string { return m.outputs }

// Infer implements function.Model.
func (m *model) Infer(ctx context.Context, inputs []function.ModelTensor) ([]function.ModelTensor, error) {
	direct := m.models.bypasses.of(m.name)
	link, done := direct.begin()
	defer done()
	var outputs []function.ModelTensor
	err := worker.ErrNoBypass
	if link != nil {
		outputs, err = direct.infer(ctx, link, inputs, m.outputs)
	}
	if errors.Is(err, worker.ErrNoBypass) {
		if outputs, err = m.inferByNode(ctx, inputs); err == nil {
			direct.request(sizeOf(inputs) + sizeOf(outputs))
		}
	}
	if err != nil && outboard.KindOf(err) == outboard.Invalid {
		m.models.forget(m.name) // another version may take other tensors
	}
	return outputs, err
}

// sizeOf returns the bytes of tensors, with room for their alignment.
func sizeOf(list []function.ModelTensor) int {
	n := 0
	for i := range list {
		n += len(list[i].Data) + 64
	}
	return n
}

// inferByNode has the node compute the outputs, on this or another node.
func (m *model) inferByNode(ctx context.Context, inputs []function.ModelTensor) ([]function.ModelTensor, error) {
	request := &inference.ModelInferRequest{ModelName: m.name}
	for i := range inputs {
		t := &inputs[i]
		request.Inputs = append(request.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: t.Type, Shape: t.Shape})
		request.RawInputContents = append(request.RawInputContents, t.Data)
	}
	for _, name := range m.outputs {
		request.Outputs = append(request.Outputs, &inference.ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
	var reply inference.ModelInferResponse
	if err := m.models.call(ctx, "ModelInfer", request, &reply); err != nil {
		return nil, err
	}
	return m.outputsOf(&reply)
}

func (m *Models) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
}

// outputsOf returns the outputs of a response in the order of the model's.
func (m *model) outputsOf(reply *inference.ModelInferResponse) ([]function.ModelTensor, error) {
	list := make([]function.ModelTensor, len(m.outputs))
	for i, name := range m.outputs {
		at := slices.IndexFunc(reply.GetOutputs(), func(t *inference.ModelInferResponse_InferOutputTensor) bool { return t.GetName() == name })
		if at < 0 || at >= len(reply.GetRawOutputContents()) {
			return nil, outboard.Errorf(outboard.Protocol, "", "the response of the model %s has no output %q", m.name, name)
		}
		t := reply.GetOutputs()[at]
		list[i] = function.ModelTensor{Name: name, Type: t.GetDatatype(), Shape: t.GetShape(), Data: reply.GetRawOutputContents()[at]}
	}
	return list, nil
}
