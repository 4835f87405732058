package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// A pair is a recorded request with its result: tensors by their names, or a prompt with the text
// by which greedy decoding continues it.
type pair struct {
	Inputs  map[string]json.RawMessage `json:"inputs"`
	Outputs map[string]json.RawMessage `json:"outputs"`
	Prompt  string                     `json:"prompt"`
	Text    string                     `json:"text"`
}

// Limits of recorded pairs, and the tolerance if the configuration has none.
const (
	maxPairs         = 1000
	maxPairsFile     = 64 << 20 // bytes
	maxPairTokens    = 1024
	defaultTolerance = 1e-3
)

// checkPairs makes a loaded model repeat its recorded pairs. The error names the first pair that
// differs.
func (i *instance) checkPairs(ctx context.Context, w *worker.Worker) error {
	name := i.spec.Config.Pairs
	if name == "" {
		return nil
	}
	list, err := readPairs(filepath.Join(i.dir, "files", name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for n := range list {
		check := i.checkTensors
		if list[n].Inputs == nil {
			check = checkText
		}
		if err := check(ctx, w, &list[n]); err != nil {
			return fmt.Errorf("%s: pair %d: %w", name, n+1, err)
		}
	}
	return nil
}

func readPairs(path string) ([]pair, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPairsFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPairsFile {
		return nil, outboard.Errorf(outboard.Invalid, "", "it has more than %v", outboard.Bytes(maxPairsFile))
	}
	return parsePairs(text)
}

// parsePairs parses an array of pairs.
func parsePairs(text []byte) ([]pair, error) {
	var list []pair
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "", "want an array of recorded pairs: %w", err)
	}
	if len(list) == 0 || len(list) > maxPairs {
		return nil, outboard.Errorf(outboard.Invalid, "", "it has %d pairs: want 1 to %d", len(list), maxPairs)
	}
	for n := range list {
		p := &list[n]
		tensors, prompt := len(p.Inputs) > 0 && len(p.Outputs) > 0, p.Prompt != "" && p.Text != ""
		if tensors == prompt || prompt && len(p.Inputs)+len(p.Outputs) > 0 {
			return nil, outboard.Errorf(outboard.Invalid, "", "pair %d: want either inputs and outputs, or prompt and text", n+1)
		}
	}
	return list, nil
}

// checkTensors computes a pair's outputs and compares them with the recorded ones.
func (i *instance) checkTensors(ctx context.Context, w *worker.Worker, p *pair) error {
	if !w.Tensors() || i.server.opts.ParseTensor == nil {
		return outboard.Errorf(outboard.Invalid, "", "the model takes no tensors: want prompt and text")
	}
	info := w.Info()
	inputs, err := parseTensors(i.server, p.Inputs, info.Inputs)
	if err != nil {
		return err
	}
	want, err := parseTensors(i.server, p.Outputs, info.Outputs)
	if err != nil {
		return err
	}
	r := Request{Inputs: inputs}
	for n := range want {
		r.Outputs = append(r.Outputs, want[n].Name)
	}
	if _, err := info.Check(r.Inputs, r.Outputs, false); err != nil {
		return err
	}
	got, err := w.Infer(ctx, inputs, r.Outputs)
	if err != nil {
		return err
	}
	tolerance := cmp.Or(i.spec.Config.Tolerance, defaultTolerance)
	for n := range want {
		at := slices.IndexFunc(got, func(t model.Tensor) bool { return t.Name == want[n].Name })
		if at < 0 {
			return outboard.Errorf(outboard.Other, "", "the model returned no output %q", want[n].Name)
		}
		if err := compareTensors(&got[at], &want[n], tolerance); err != nil {
			return err
		}
	}
	return nil
}

// parseTensors parses the values of a pair in the order of the model's signatures.
func parseTensors(s *Server, values map[string]json.RawMessage, signatures []model.Signature) ([]model.Tensor, error) {
	var list []model.Tensor
	for n := range signatures {
		text, ok := values[signatures[n].Name]
		if !ok {
			continue
		}
		t, err := s.opts.ParseTensor(text, &signatures[n])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", signatures[n].Name, err)
		}
		list = append(list, t)
	}
	if len(list) != len(values) {
		return nil, outboard.Errorf(outboard.Invalid, "", "it names a tensor that the model lacks: it has %s", engine.Names(signatures))
	}
	return list, nil
}

// compareTensors returns an error that names the first element that differs.
func compareTensors(got, want *model.Tensor, tolerance float64) error {
	if got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) {
		return outboard.Errorf(outboard.Invalid, "", "output %q is %v of %v, and %v of %v was recorded", got.Name, got.Type, got.Shape, want.Type, want.Shape)
	}
	size := got.Type.Size()
	decode := floatDecoder(got.Type)
	if decode == nil || size == 0 || len(got.Data) != len(want.Data) {
		if !bytes.Equal(got.Data, want.Data) {
			return outboard.Errorf(outboard.Invalid, "", "output %q differs from what was recorded", got.Name)
		}
		return nil
	}
	for at := 0; at+size <= len(got.Data); at += size {
		g, w := decode(got.Data[at:]), decode(want.Data[at:])
		if !(math.Abs(g-w) <= tolerance*(1+math.Abs(w))) && (!math.IsNaN(g) || !math.IsNaN(w)) && g != w {
			return outboard.Errorf(outboard.Invalid, "", "output %q: element %d is %g, and %g was recorded (tolerance %g)", got.Name, at/size, g, w, tolerance)
		}
	}
	return nil
}

// floatDecoder returns a function that decodes an element of a floating-point type, nil for other
// types.
func floatDecoder(t model.DataType) func([]byte) float64 {
	switch t { //nolint:exhaustive // the others are no floating-point numbers
	case model.FP64:
		return func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	case model.FP32:
		return func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	case model.FP16:
		return func(b []byte) float64 { return float64(model.FromFloat16(binary.LittleEndian.Uint16(b))) }
	case model.BF16:
		return func(b []byte) float64 { return float64(model.FromBFloat16(binary.LittleEndian.Uint16(b))) }
	}
	return nil
}

// checkText continues a pair's prompt by greedy decoding and compares the text with the recorded
// one.
func checkText(ctx context.Context, w *worker.Worker, p *pair) error {
	if !w.Text() {
		return outboard.Errorf(outboard.Invalid, "", "the model is for tensors: want inputs and outputs")
	}
	prompt, err := w.Tokenize(ctx, engine.Text{Content: p.Prompt, Special: true})
	if err != nil {
		return err
	}
	want, err := w.Tokenize(ctx, engine.Text{Content: p.Text})
	if err != nil {
		return err
	}
	if len(want) > maxPairTokens {
		return outboard.Errorf(outboard.Invalid, "", "its text has %d tokens: at most %d", len(want), maxPairTokens)
	}
	var text []byte
	_, err = w.Generate(ctx, engine.Generation{Prompt: prompt, MaxTokens: len(want) + 1, LogProbs: -1}, func(t engine.Token) error {
		text = append(text, t.Text...)
		return nil
	})
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(text, []byte(p.Text)) {
		return outboard.Errorf(outboard.Invalid, "", "the text goes on with %.100q, and %.100q was recorded", text, p.Text)
	}
	return nil
}
