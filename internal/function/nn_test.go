package function

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

// nextModel has an input "x" and the outputs "y", its bytes plus one, and "size".
type nextModel struct{ held }

func (m nextModel) of(b *bag) Resource { return nextModel{held{b}} }
func (nextModel) Inputs() []string     { return []string{"x"} }
func (nextModel) Outputs() []string    { return []string{"y", "size"} }

func (nextModel) Infer(_ context.Context, inputs []ModelTensor) ([]ModelTensor, error) {
	y := inputs[0]
	y.Name, y.Data = "y", slices.Clone(y.Data)
	for i := range y.Data {
		y.Data[i]++
	}
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(y.Data)))
	return []ModelTensor{y, {Name: "size", Type: "INT32", Shape: []int64{1}, Data: size}}, nil
}

// refusingModel is busy.
type refusingModel struct{ nextModel }

func (m refusingModel) of(b *bag) Resource { return refusingModel{nextModel{held{b}}} }

func (refusingModel) Infer(context.Context, []ModelTensor) ([]ModelTensor, error) {
	return nil, outboard.Errorf(outboard.Busy, "", "too many requests")
}

// waitingModel computes until it is told to stop.
type waitingModel struct{ nextModel }

func (m waitingModel) of(b *bag) Resource { return waitingModel{nextModel{held{b}}} }

func (waitingModel) Infer(ctx context.Context, _ []ModelTensor) ([]ModelTensor, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// words are words as memory has them.
func words(list ...uint32) string {
	var b []byte
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return string(b)
}

// tensor brings a tensor into the puppet's memory and returns where it is.
func (s *script) tensor(kind uint32, shape []uint32, data string) uint32 {
	dimensions, rank := s.text(words(shape...))
	bytes, size := s.text(data)
	at, _ := s.text(words(dimensions, rank/4, kind, bytes, size))
	return at
}

// infer adds the steps of a computation, whose codes are the results of the last four.
func (s *script) infer(model string, context uint32, shape []uint32, data string) {
	name, size := s.text(model)
	tensor := s.tensor(3, shape, data)
	s.do(nnOp+"load_by_name", name, size, puppetWritten)
	s.do(nnOp+"init_execution_context", context, puppetWritten)
	s.do(nnOp+"set_input", context, 0, tensor)
	s.do(nnOp+"compute", context)
}

func TestNN(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	var s script
	s.infer("next", 1, []uint32{2, 2}, "abcd")
	first := len(s.steps) - 4
	more := []int{
		s.do(nnOp+"get_output", 1, 0, puppetScratch+4096), s.do("load", puppetScratch+4096), s.do("load", puppetWritten),
		s.do(nnOp+"get_output", 1, 1, puppetScratch+4096), s.do("load", puppetScratch+4096),
	}
	bag := manifest(f, nil)
	got, p := perform(t, f, &s, Request{Resources: bag})
	want := []int64{0, 0, 0, 0, 0, word("bcde"), 4, 0, 4}
	all := slices.Clone(got[first : first+4])
	for _, n := range more {
		all = append(all, got[n])
	}
	if diff := cmp.Diff(all, want); diff != "" {
		t.Error(diff)
	}
	if len(p.Imports) != 1 || p.Imports[0].Name != "model:next" || p.Imports[0].Copied != 4+4+4 || bag.left() != 0 {
		t.Errorf("got %+v, and %d are left", p.Imports, bag.left())
	}
}

// What is wrong has its code, and a text that says what to do.
func TestNNRefusals(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Memory: 1 << 20})
	for name, c := range map[string]struct {
		steps func(s *script)
		want  int64
		text  string
	}{
		"not in the manifest": {func(s *script) {
			at, size := s.text("other")
			s.do(nnOp+"load_by_name", at, size, puppetWritten)
		}, int64(nnRuntimeError), "add"}, // the bag's errors have no kind
		"a name outside": {func(s *script) { s.do(nnOp+"load_by_name", 1<<31, 4, puppetWritten) }, int64(nnInvalidArgument), "outs"},
		"no graph":       {func(s *script) { s.do(nnOp+"init_execution_context", 7, puppetWritten) }, int64(nnInvalidArgument), "7 is"},
		"no context":     {func(s *script) { s.do(nnOp+"compute", 3) }, int64(nnInvalidArgument), "3 is"},
		"busy":           {func(s *script) { s.infer("none", 1, []uint32{1}, "a") }, int64(nnBusy), "too "},
		"not set": {func(s *script) {
			s.infer("next", 1, nil, "")
			s.do(nnOp+"init_execution_context", 1, puppetWritten)
			s.do(nnOp+"compute", 2)
		}, int64(nnInvalidArgument), "inpu"},
		"no such input": {func(s *script) { s.infer("next", 1, nil, ""); s.do(nnOp+"set_input", 1, 1, puppetScratch) }, int64(nnInvalidArgument), "the "},
		"unknown type":  {func(s *script) { s.infer("next", 1, nil, ""); s.do(nnOp+"set_input", 1, 0, s.tensor(6, nil, "a")) }, int64(nnInvalidArgument), "a te"},
		"nothing computed": {func(s *script) {
			at, size := s.text("next")
			s.do(nnOp+"load_by_name", at, size, puppetWritten)
			s.do(nnOp+"init_execution_context", 1, puppetWritten)
			s.do(nnOp+"get_output", 1, 0, 0)
		}, int64(nnInvalidArgument), "noth"},
		"no such output":   {func(s *script) { s.infer("next", 1, nil, "a"); s.do(nnOp+"get_output", 1, 2, 0) }, int64(nnInvalidArgument), "the "},
		"the buffer's end": {func(s *script) { s.infer("next", 1, nil, "a"); s.do(nnOp+"get_output", 1, 0, 1<<31) }, int64(nnInvalidArgument), "outs"},
		"more than is allowed": {func(s *script) {
			s.infer("next", 1, nil, "a")
			at, _ := s.text(words(0, 0, 3, 0, 2<<20))
			s.do(nnOp+"set_input", 1, 0, at)
		}, int64(nnTooLarge), "a te"},
	} {
		var s script
		c.steps(&s)
		code, text := len(s.steps)-1, s.readResult()
		got, p := perform(t, f, &s, Request{Resources: manifest(f, nil)})
		var said [4]byte
		binary.LittleEndian.PutUint32(said[:], uint32(got[text]))
		if got[code] != c.want || !strings.Contains(string(p.Stderr.Text), "wasi-nn: ") {
			t.Errorf("%s: %d, %q, want %d; it wrote %q", name, got[code], said, c.want, p.Stderr.Text)
		}
	}
}

// A computation ends with the function's deadline.
func TestNNDeadline(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Deadline: 50 * time.Millisecond})
	var s script
	s.infer("wait", 1, []uint32{1}, "a")
	bag := manifest(f, nil)
	_, err := f.Call(t.Context(), Request{Body: s.body(), Resources: bag})
	if endingOf(err).Limit == "" || bag.left() != 0 {
		t.Errorf("it ended with %v, and %d are left", err, bag.left())
	}
}

// A tensor that was read has what the memory has, and no more than there is room for.
func FuzzNNTensor(f *testing.F) {
	f.Add([]byte(words(20, 1, 1, 24, 4, 1)+"abcd"), uint32(0))
	f.Add([]byte(words(0, 32, 5, 0, 20)), uint32(0))
	f.Fuzz(func(t *testing.T, memory []byte, at uint32) {
		const room = 64
		tensor, err := readNNTensor(func(at, size uint32) ([]byte, bool) {
			if uint64(at)+uint64(size) > uint64(len(memory)) {
				return nil, false
			}
			return memory[at : at+size], true
		}, at, room)
		if err != nil {
			return
		}
		if len(tensor.Shape) > maxNNRank || len(tensor.Data) > room || tensor.Type == "" {
			t.Errorf("%+v", tensor)
		}
	})
}
