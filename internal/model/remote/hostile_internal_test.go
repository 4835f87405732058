package remote

import (
	"context"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// The outputs of another node have the sizes of their shapes: a node that does not serve a model but
// answers for it can't have this node read beyond their data, or allocate by a wrong shape.
func TestOutputsOfHostileNodes(t *testing.T) {
	type output = inference.ModelInferResponse_InferOutputTensor
	for name, c := range map[string]struct {
		output *output
		data   []byte
		valid  bool
	}{
		"valid":    {&output{Name: "y", Datatype: "FP32", Shape: []int64{1, 2}}, make([]byte, 8), true},
		"short":    {&output{Name: "y", Datatype: "FP32", Shape: []int64{1, 2}}, make([]byte, 7), false},
		"long":     {&output{Name: "y", Datatype: "FP32", Shape: []int64{1, 2}}, make([]byte, 12), false},
		"negative": {&output{Name: "y", Datatype: "FP32", Shape: []int64{-1, -2}}, make([]byte, 8), false},
		"huge":     {&output{Name: "y", Datatype: "FP64", Shape: []int64{1 << 62}}, make([]byte, 8), false},
		"elements": {&output{Name: "y", Datatype: "BYTES", Shape: []int64{1}}, []byte{9, 0, 0, 0, 1}, false},
	} {
		reply := &inference.ModelInferResponse{ModelVersion: "1", Outputs: []*output{c.output}, RawOutputContents: [][]byte{c.data}}
		_, err := readResponse("ketch", reply)
		if c.valid != (err == nil) || err != nil && outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A hostileText answers with a token, statistics and counts of its own choice.
type hostileText struct {
	engine.TextModel
	token engine.Token
	usage engine.Usage
	stats engine.TextStats
}

func (m hostileText) Info() engine.Info       { return engine.Info{} }
func (m hostileText) Stats() engine.TextStats { return m.stats }

func (m hostileText) Generate(_ context.Context, _ engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	for range 2 {
		if err := emit(m.token); err != nil {
			return engine.Usage{}, err
		}
	}
	return m.usage, nil
}

// What another node sends for a generation is that of an engine: counters of metrics that decrease would
// end this node, and it keeps the tokens of a client that is answered at once.
func TestGenerationsOfHostileNodes(t *testing.T) {
	for name, m := range map[string]hostileText{
		"counts": {usage: engine.Usage{CachedTokens: -1}},
		"reason": {token: engine.Token{Last: "x"}},
		"tokens": {token: engine.Token{Last: engine.FinishStop}},
	} {
		text := serveModel(t, m).TextModel
		usage, err := text.Generate(t.Context(), engine.Generation{Prompt: []int32{1}}, func(engine.Token) error { return nil })
		if outboard.KindOf(err) != outboard.Protocol || usage != (engine.Usage{}) {
			t.Errorf("%s: %+v, %v", name, usage, err)
		}
	}
	if s := serveModel(t, hostileText{stats: engine.TextStats{Running: -1}}).Stats(); s.Running != 0 {
		t.Errorf("statistics %+v", s)
	}
}
