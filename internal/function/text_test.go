package function

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

// wordsModel answers with its request and "end!", refuses or waits.
type wordsModel struct {
	held
	refuse, wait bool
}

func (m wordsModel) of(b *bag) Resource {
	m.held = held{b}
	return m
}

func (m wordsModel) Complete(ctx context.Context, request []byte) (TextStream, error) {
	if m.refuse {
		return nil, outboard.Errorf(outboard.Busy, "", "too many requests")
	}
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	m.b.held++ // until Close
	return &wordsStream{ctx: ctx, model: m, chunks: []string{string(request), "end!"}}, nil
}

type wordsStream struct {
	ctx    context.Context //nolint:containedctx // as a stream of gRPC
	model  wordsModel
	chunks []string
}

func (s *wordsStream) Next() ([]byte, error) {
	if s.model.wait {
		<-s.ctx.Done()
		return nil, context.Cause(s.ctx)
	}
	if len(s.chunks) == 0 {
		return nil, io.EOF
	}
	chunk := s.chunks[0]
	s.chunks = s.chunks[1:]
	return []byte(chunk), nil
}

func (s *wordsStream) Close() { s.model.Release() }

// start adds the steps that start an answer of a model, and returns that of start.
func (s *script) start(model, request string) int {
	name, size := s.text("model:" + model)
	at, length := s.text(request)
	s.do("import", name, size)
	return s.do(textOp+"start", 1, at, length)
}

// An answer comes in chunks, and its handle is used again when it has ended.
func TestText(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	var s script
	began := s.start("words", `{"a":1}`)
	number := s.do("load", puppetWritten)
	next := func() []int {
		return []int{s.do(textOp+"next", 1, puppetWritten), s.do("load", puppetWritten), s.readResult()}
	}
	steps := append([]int{began, number}, next()...)
	steps = append(steps, next()...)
	steps = append(steps, s.do(textOp+"next", 1, puppetWritten), s.do("load", puppetWritten), s.start("words", `{}`), s.do("load", puppetWritten), s.do(textOp+"end", 1), s.do(textOp+"end", 1), s.do(textOp+"next", 1, puppetWritten))
	bag := manifest(f, nil)
	got, p := perform(t, f, &s, Request{Resources: bag})
	want := []int64{0, 1, 0, 1, word(`{"a"`), 0, 1, word("end!"), 0, 0, 0, 1, 0, 0, int64(nnInvalidArgument)}
	var all []int64
	for _, n := range steps {
		all = append(all, got[n])
	}
	if diff := cmp.Diff(all, want); diff != "" {
		t.Error(diff)
	}
	if p.Imports[0].Name != "model:words" || p.Imports[0].Copied != 7+7+4+2 || bag.left() != 0 {
		t.Errorf("got %+v, and %d are left", p.Imports, bag.left())
	}
}

// What is refused has its code and a text, and nothing of it is left.
func TestTextRefusals(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	for name, c := range map[string]struct {
		steps func(s *script)
		want  uint64
		text  string
	}{
		"busy":        {func(s *script) { s.start("speechless", `{}`) }, nnBusy, "too many"},
		"for tensors": {func(s *script) { s.start("next", `{}`) }, nnInvalidArgument, "no model for text"},
		"no JSON":     {func(s *script) { s.start("words", `{`) }, nnInvalidEncoding, "no JSON"},
		"outside":     {func(s *script) { s.start("words", `{}`); s.do(textOp+"start", 1, 1<<31, 8) }, nnInvalidArgument, "outside"},
		"too large":   {func(s *script) { s.start("words", `{}`); s.do(textOp+"start", 1, 0, maxTextRequest+1) }, nnTooLarge, "at most"},
		"no model":    {func(s *script) { s.do(textOp+"start", 7, 0, 0) }, nnInvalidArgument, "7 is no"},
		"no stream":   {func(s *script) { s.do(textOp+"next", 3, puppetWritten) }, nnInvalidArgument, "3 is no"},
		"too many at once": {func(s *script) {
			for range maxTextStreams + 1 {
				s.start("words", `{}`)
			}
		}, nnTooLarge, "end one"},
	} {
		var s script
		c.steps(&s)
		code := len(s.steps) - 1
		bag := manifest(f, nil)
		got, p := perform(t, f, &s, Request{Resources: bag})
		if got[code] != int64(c.want) || !strings.Contains(string(p.Stderr.Text), c.text) || bag.left() != 0 {
			t.Errorf("%s: %d, want %d; it wrote %q, and %d are left", name, got[code], c.want, p.Stderr.Text, bag.left())
		}
	}
}

// An answer ends with the function's deadline.
func TestTextDeadline(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Deadline: 50 * time.Millisecond})
	var s script
	s.start("slow", `{}`)
	s.do(textOp+"next", 1, puppetWritten)
	bag := manifest(f, nil)
	_, err := f.Call(t.Context(), Request{Body: s.body(), Resources: bag})
	if endingOf(err).Limit == "" || bag.left() != 0 {
		t.Errorf("it ended with %v, and %d are left", err, bag.left())
	}
}

// A request that was read is JSON, and lies in the memory.
func FuzzTextRequest(f *testing.F) {
	f.Add([]byte(`{"messages":[]}`), uint32(0), uint32(15))
	f.Add([]byte(`{}`), uint32(1), uint32(1<<31))
	f.Fuzz(func(t *testing.T, memory []byte, at, size uint32) {
		request, err := readTextRequest(func(at, size uint32) ([]byte, bool) {
			if uint64(at)+uint64(size) > uint64(len(memory)) {
				return nil, false
			}
			return memory[at : at+size], true
		}, at, size)
		if err == nil && (!json.Valid(request) || !bytes.Equal(request, memory[at:at+size])) {
			t.Errorf("%q", request)
		}
	})
}
