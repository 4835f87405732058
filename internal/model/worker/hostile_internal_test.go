package worker

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/shm"
)

// A hostileProcess is a model's process that answers as it likes. It sends no frame by itself.
type hostileProcess struct {
	info   engine.Info
	isText bool
	// answer handles a message that the node sends after the model is loaded, nil for none.
	answer func(conn *ipc.Conn, m *ipc.Message)

	ring *shm.Ring
}

// start returns the node's end of the process.
func (h *hostileProcess) start(t *testing.T) (*Worker, error) {
	t.Helper()
	w, err := Start(t.Context(), Options{Engine: "fake", PingLimit: 5 * time.Minute, Launch: helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		conn, err := ipc.FromFile(socket, ipc.Options{MaxBody: maxMessage})
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		conn.Serve(func(m *ipc.Message) { h.handle(conn, m) })
		if h.ring != nil {
			h.ring.Unmap()
		}
		return nil
	})})
	if err == nil {
		t.Cleanup(func() { _ = w.Close() })
	}
	return w, err
}

func (h *hostileProcess) handle(conn *ipc.Conn, m *ipc.Message) {
	switch m.Type {
	case typeLoad:
		ring, err := shm.Open(m.File(), shm.Worker)
		if err == nil {
			h.ring = ring
		}
		_ = conn.Reply(m, loadReply{Info: h.info, Tensors: !h.isText, Text: h.isText}, err)
	default:
		if h.answer != nil {
			h.answer(conn, m)
		}
	}
	m.Close()
}

// A description that no engine returns would have the node index or allocate by it.
func TestHostileDescriptions(t *testing.T) {
	list := func(s model.Signature) []model.Signature { return []model.Signature{s} }
	for name, info := range map[string]engine.Info{
		"batch without a dimension":  {BatchDimension: true, Inputs: list(model.Signature{Name: "x", Type: model.FP32})},
		"output without a dimension": {BatchDimension: true, Outputs: list(model.Signature{Name: "y", Type: model.FP32})},
		"negative dimension":         {Inputs: list(model.Signature{Name: "x", Type: model.FP32, Shape: []int64{math.MinInt64}})},
		"rank":                       {Inputs: list(model.Signature{Name: "x", Type: model.FP32, Shape: make([]int64, 65)})},
		"signatures":                 {Inputs: slices.Repeat(list(model.Signature{Type: model.FP32}), 4097)},
		"names":                      {Outputs: list(model.Signature{Name: strings.Repeat("n", 1<<20+1), Type: model.FP32})},
		"calls":                      {Calls: 1 << 20},
		"sequences":                  {Sequences: -1},
		"context":                    {Context: -1},
		"vocabulary":                 {Vocabulary: math.MaxInt},
		"batch":                      {MaxBatch: -1},
		"memory":                     {Memory: -1},
		"template":                   {ChatTemplate: strings.Repeat("t", 1<<20+1)},
	} {
		if _, err := (&hostileProcess{info: info}).start(t); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A process that sends tokens without an end, or a client that does not read them, ends its
// generation and does not fill the node's memory.
func TestTokensAreBounded(t *testing.T) {
	const parts = 64
	sent := make(chan struct{})
	h := &hostileProcess{isText: true, answer: func(conn *ipc.Conn, m *ipc.Message) {
		if m.Type == typePing {
			_ = conn.Reply(m, nil, nil)
		}
		var r generateRequest
		if m.Type != typeGenerate || m.Decode(&r) != nil {
			return
		}
		text := strings.Repeat("t", 1<<20)
		for range parts {
			_ = conn.Send(typeTokens, tokensMessage{[]generatedTokens{{r.Generation, []engine.Token{{Text: text}}}}})
		}
		_ = conn.Send(typeGenerated, generatedMessage{Generation: r.Generation})
		close(sent)
	}}
	w, err := h.start(t)
	if err != nil {
		t.Fatal(err)
	}
	emitted := 0
	_, err = w.Generate(t.Context(), engine.Generation{Prompt: []int32{1}, MaxTokens: parts, LogProbs: -1}, func(engine.Token) error {
		if emitted++; emitted == 1 {
			<-sent
			m, err := w.conn.Call(t.Context(), typePing, nil)
			if err != nil { // the node has all parts when the answer comes
				t.Error(err)
				return nil
			}
			m.Close()
		}
		return nil
	})
	if outboard.KindOf(err) != outboard.Exhausted || emitted > parts/2 {
		t.Errorf("%d parts of %d are emitted: %v", emitted, parts, err)
	}
	if held := w.texts.waiting.Load(); held != 0 {
		t.Errorf("%d bytes of tokens count although none waits", held)
	}
}

// A process reports counts that no engine returns, and sends more tokens than were requested.
func TestHostileGenerations(t *testing.T) {
	more := generatedTokens{Tokens: make([]engine.Token, 2)}
	for name, sends := range map[string]struct {
		tokens generatedTokens
		end    generatedMessage
	}{
		"counts":                 {end: generatedMessage{Usage: engine.Usage{CachedTokens: -1}}},
		"counts beside an error": {end: generatedMessage{Usage: engine.Usage{PromptTokens: -1}, Error: "no", Kind: outboard.Exhausted}},
		"tokens":                 {tokens: more},
	} {
		h := &hostileProcess{isText: true, answer: func(conn *ipc.Conn, m *ipc.Message) {
			var r generateRequest
			if m.Type != typeGenerate || m.Decode(&r) != nil {
				return
			}
			sends.tokens.Generation, sends.end.Generation = r.Generation, r.Generation
			_ = conn.Send(typeTokens, tokensMessage{[]generatedTokens{sends.tokens}})
			_ = conn.Send(typeGenerated, sends.end)
		}}
		w, err := h.start(t)
		if err != nil {
			t.Fatal(err)
		}
		emitted := 0
		usage, err := w.Generate(t.Context(), engine.Generation{Prompt: []int32{1}, MaxTokens: 1, LogProbs: -1}, func(engine.Token) error {
			emitted++
			return nil
		})
		if outboard.KindOf(err) != outboard.Protocol || usage != (engine.Usage{}) || emitted > 1 {
			t.Errorf("%s: %d tokens, %+v, %v", name, emitted, usage, err)
		}
	}
}

// A process reports statistics that no engine returns: it has none.
func TestHostileStatistics(t *testing.T) {
	h := &hostileProcess{isText: true, answer: func(conn *ipc.Conn, m *ipc.Message) {
		if m.Type == typeStats {
			_ = conn.Reply(m, engine.TextStats{Running: 1, Waiting: -1}, nil)
		}
	}}
	w, err := h.start(t)
	if err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.Running != 0 || s.Waiting != 0 {
		t.Errorf("got %+v", s)
	}
}

// Outputs that lie in the same memory take more of the node's than the process has.
func TestOutputsAreBounded(t *testing.T) {
	memory, err := newSegment(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.unmap()
	answer := &reply{}
	for range maxSegment/len(memory.mem) + 1 {
		answer.outputs = append(answer.outputs, placed{offset: 0, size: uint64(len(memory.mem))})
	}
	c := &tensorClient{}
	if _, err := c.results(&tensorCall{memory: &segment{mem: memory.mem}}, answer); outboard.KindOf(err) != outboard.Exhausted {
		t.Error(err)
	}
}
