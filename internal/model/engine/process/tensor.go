package process

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// A tensorModel is a model for tensors that a server of the Open Inference Protocol executes.
type tensorModel struct {
	*connection
	client oipClient // zero before the first check
	name   string    // the server's name of the model
	info   engine.Info
}

var _ engine.SequenceModel = (*tensorModel)(nil)

// tensorCalls is the number of calls that are in progress at once: servers form batches of them.
const tensorCalls = 16

// maxSignatures bounds the inputs, and the outputs, of a model.
const maxSignatures = 1 << 10

func newTensorModel(server Server) *tensorModel {
	return &tensorModel{connection: newConnection(server), name: server.Model}
}

// Info implements engine.Model.
func (m *tensorModel) Info() engine.Info { return m.info }

// Close implements engine.Model. It ends a server that Load has started.
func (m *tensorModel) Close() error {
	m.end()
	if m.client.ClientConn == nil {
		return nil
	}
	_ = m.client.Close() // it may be closed already
	return nil
}

// checkReady implements serverModel: the model must be ready, not only the server.
func (m *tensorModel) checkReady(ctx context.Context) (err error) {
	if m.client.ClientConn == nil {
		if m.client, err = dialOIP(m.url); err != nil {
			return err
		}
	}
	if m.name == "" {
		if m.name, err = m.client.modelName(ctx); err != nil {
			return err
		}
	}
	var reply inference.ModelReadyResponse
	err = m.client.call(ctx, "ModelReady", &inference.ModelReadyRequest{Name: m.name}, &reply)
	switch {
	case isUnimplemented(err):
		return outboard.Errorf(outboard.Invalid, "model server", "it does not serve the Open Inference Protocol over gRPC: %w", err)
	case err == nil && reply.GetReady():
		return nil
	}
	if reason := m.client.loadFailure(ctx, m.name); reason != "" {
		return outboard.Errorf(outboard.Invalid, "model server", "the model %.100s was not loaded: %.*s", m.name, maxReason, reason)
	}
	if err != nil && outboard.KindOf(err) != outboard.Unreachable {
		return outboard.Errorf(outboard.Unreachable, "", "%w", err) // the server may still be loading it
	}
	if err == nil {
		err = outboard.Errorf(outboard.Unreachable, "model server", "the model %.100s is not ready", m.name)
	}
	return err
}

// describe implements serverModel.
func (m *tensorModel) describe(ctx context.Context) error {
	info, err := m.describeTensors(ctx)
	if err != nil {
		return err
	}
	extensions, err := m.client.extensions(ctx)
	if err != nil {
		return err
	}
	info.Calls, info.Stateful = tensorCalls, slices.ContainsFunc(extensions, isSequence)
	rows, known, err := m.client.maxBatch(ctx, m.name)
	if err != nil {
		return err
	}
	info.MaxBatch = max(rows, 0)
	info.BatchDimension = (!known || rows > 0) && hasBatchDimension(info.Inputs) && hasBatchDimension(info.Outputs)
	m.info = info
	return nil
}

// isSequence reports whether an extension is that of sequences: "sequence", "sequence(string_id)".
func isSequence(extension string) bool {
	name, _, _ := strings.Cut(extension, "(")
	return name == "sequence"
}

// describeTensors returns the description of the model's inputs and outputs.
func (m *tensorModel) describeTensors(ctx context.Context) (info engine.Info, err error) {
	var reply inference.ModelMetadataResponse
	if err := m.client.call(ctx, "ModelMetadata", &inference.ModelMetadataRequest{Name: m.name}, &reply); err != nil {
		return info, err
	}
	platform := reply.GetPlatform()
	info.Platform = strings.ToValidUTF8(platform[:min(len(platform), maxReason)], "?")
	if info.Inputs, err = signatures(reply.GetInputs()); err != nil {
		return info, err
	}
	if info.Outputs, err = signatures(reply.GetOutputs()); err != nil {
		return info, err
	}
	if len(info.Inputs) == 0 || len(info.Outputs) == 0 {
		return info, outboard.Errorf(outboard.Protocol, "model server", "it describes %d inputs and %d outputs of the model %.100s: describe them in the server's configuration of the model",
			len(info.Inputs), len(info.Outputs), m.name)
	}
	return info, nil
}

// hasBatchDimension reports whether the first dimension of all tensors is variable.
func hasBatchDimension(list []model.Signature) bool {
	return !slices.ContainsFunc(list, func(s model.Signature) bool { return len(s.Shape) == 0 || s.Shape[0] >= 0 })
}

// signatures converts the descriptions of inputs or outputs.
func signatures(list []*inference.ModelMetadataResponse_TensorMetadata) ([]model.Signature, error) {
	wrong := func(name, reason string) error {
		return outboard.Errorf(outboard.Protocol, "model server", "its description of the tensor %.100q: %s", name, reason)
	}
	if len(list) > maxSignatures {
		return nil, outboard.Errorf(outboard.Protocol, "model server", "it describes %d tensors, at most %d are allowed", len(list), maxSignatures)
	}
	all := make([]model.Signature, 0, len(list))
	for _, t := range list {
		kind, err := model.ParseDataType(t.GetDatatype())
		switch {
		case err != nil:
			return nil, wrong(t.GetName(), err.Error())
		case t.GetName() == "" || len(t.GetName()) > maxReason || slices.ContainsFunc(all, func(s model.Signature) bool { return s.Name == t.GetName() }):
			return nil, wrong(t.GetName(), "the name is empty, too long, or there twice")
		case len(t.GetShape()) > maxDimensions || slices.ContainsFunc(t.GetShape(), func(d int64) bool { return d < -1 || d > math.MaxInt32 }):
			return nil, wrong(t.GetName(), "the shape is not valid")
		}
		all = append(all, model.Signature{Name: t.GetName(), Type: kind, Shape: t.GetShape()})
	}
	return all, nil
}

// maxDimensions bounds the rank of a tensor.
const maxDimensions = 64

// Infer implements engine.TensorModel.
func (m *tensorModel) Infer(ctx context.Context, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	return m.InferSequence(ctx, model.Sequence{}, inputs, outputs)
}

// InferSequence implements engine.SequenceModel, by the protocol's extension sequence.
func (m *tensorModel) InferSequence(ctx context.Context, q model.Sequence, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	if m.closing.Load() {
		return nil, errClosed
	}
	if _, err := m.info.Check(inputs, outputs, false); err != nil {
		return nil, err
	}
	request := &inference.ModelInferRequest{ModelName: m.name, Parameters: sequenceParameters(q)}
	request.AddTensors(inputs, outputs)
	var reply inference.ModelInferResponse
	if err := m.client.call(ctx, "ModelInfer", request, &reply); err != nil {
		if m.closing.Load() && ctx.Err() == nil {
			return nil, errClosed
		}
		if outboard.KindOf(err) == outboard.Unreachable && !m.client.isConnected(ctx) {
			err = m.explain(ctx, err)
		}
		return nil, err
	}
	list, err := reply.Tensors()
	if err == nil {
		list, err = m.selectOutputs(list, outputs)
	}
	if err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "model server", "%w", err)
	}
	return list, nil
}

// sequenceParameters returns the parameters of a request of a sequence.
func sequenceParameters(q model.Sequence) map[string]*inference.InferParameter {
	if q.Number == 0 {
		return nil
	}
	return map[string]*inference.InferParameter{
		"sequence_id":    {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: q.Number}},
		"sequence_start": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: q.Start}},
		"sequence_end":   {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: q.End}},
	}
}

// selectOutputs returns the named outputs in their order, or all of the model's, and compares them with
// the model's description.
func (m *tensorModel) selectOutputs(list []model.Tensor, names []string) ([]model.Tensor, error) {
	if len(names) == 0 {
		for i := range m.info.Outputs {
			names = append(names, m.info.Outputs[i].Name)
		}
	}
	all := make([]model.Tensor, len(names))
	for i, name := range names {
		at := slices.IndexFunc(list, func(t model.Tensor) bool { return t.Name == name })
		if at < 0 {
			return nil, outboard.Errorf(outboard.Protocol, "", "its reply has no output %q", name)
		}
		all[i] = list[at]
		sig := &m.info.Outputs[slices.IndexFunc(m.info.Outputs, func(s model.Signature) bool { return s.Name == name })]
		if t := &all[i]; t.Type != sig.Type || !sig.Fits(t.Shape) {
			return nil, outboard.Errorf(outboard.Protocol, "", "its output %q is %v %v, and it described %v %v", name, t.Type, t.Shape, sig.Type, sig.Shape)
		}
	}
	return all, nil
}
