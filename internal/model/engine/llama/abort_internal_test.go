package llama

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/gguf"
)

// onOperation has the library call f after each operation until the test ends, and then ask the
// model's flag.
func onOperation(t *testing.T, m *textModel, f func()) {
	t.Helper()
	callback := purego.NewCallback(func(uintptr) uintptr {
		f()
		return uintptr(atomic.LoadUint32(&m.abort.word.values[0]))
	})
	m.lib.call(fnSetAbort, m.context, callback, 0)
	t.Cleanup(func() { m.lib.call(fnSetAbort, m.context, m.lib.strlen, m.abort.word.address()) })
}

func tokensOf(ctx context.Context, m *textModel, g engine.Generation) (tokens []int32, usage engine.Usage, err error) {
	g.LogProbs, g.Sampling = -1, engine.Sampling{Bias: map[int32]float32{gguf.End: -100}}
	usage, err = m.Generate(ctx, g, func(t engine.Token) error { tokens = append(tokens, t.ID); return nil })
	return tokens, usage, err
}

var longPrompt = append([]int32{10}, slices.Repeat([]int32{11, 17, 24, 31}, 50)...)

// A micro-batch is not computed to its end when all of its clients have gone, and leaves nothing
// behind: the same prompt is computed again, and has the tokens of a new model.
func TestGoneClientsEndTheirMicroBatch(t *testing.T) {
	want, _, err := tokensOf(t.Context(), loadLayers(t, engine.Options{Threads: 2, Sequences: 2}), engine.Generation{Prompt: longPrompt, MaxTokens: 5})
	if err != nil {
		t.Fatal(err)
	}
	m := loadLayers(t, engine.Options{Threads: 2, Sequences: 2})
	t.Run("gone", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		operations := 0
		onOperation(t, m, func() {
			operations++
			leave()
			for atomic.LoadUint32(&m.abort.word.values[0]) == 0 {
				runtime.Gosched()
			}
		})
		if _, _, err := tokensOf(ctx, m, engine.Generation{Prompt: longPrompt, MaxTokens: 5}); !errors.Is(err, context.Canceled) {
			t.Errorf("the generation of a client that has gone ended with %v", err)
		}
		if operations != 1 {
			t.Errorf("%d operations were computed, want 1", operations)
		}
	})
	got, usage, err := tokensOf(t.Context(), m, engine.Generation{Prompt: longPrompt, MaxTokens: 5})
	if err != nil || !slices.Equal(got, want) || usage.CachedTokens != 0 {
		t.Errorf("tokens %v with %d from the cache, want %v: %v", got, usage.CachedTokens, want, err)
	}
}

// What is computed for a client that stays is not given up for one that leaves.
func TestMicroBatchGoesOnForOthers(t *testing.T) {
	m := loadLayers(t, engine.Options{Threads: 2, Sequences: 2})
	ctx, leave := context.WithCancel(t.Context())
	shared := false
	state := func() (computing, waiting int) {
		c := &m.scheduler.computation
		c.mu.Lock()
		computing = len(c.sequences)
		c.mu.Unlock()
		return computing, m.Stats().Waiting
	}
	onOperation(t, m, func() {
		computing, waiting := state()
		for !shared && computing < 2 && waiting == 0 { // until the other prompt comes
			runtime.Gosched()
			computing, waiting = state()
		}
		if computing == 2 {
			shared = true
			leave()
			m.scheduler.interrupt()
			if atomic.LoadUint32(&m.abort.word.values[0]) != 0 {
				t.Error("the micro-batch of a client that stays is given up")
			}
		}
	})
	var streams sync.WaitGroup
	streams.Go(func() {
		_, err := m.Generate(t.Context(), engine.Generation{
			Prompt: longPrompt, MaxTokens: 20, LogProbs: -1, Sampling: engine.Sampling{Bias: map[int32]float32{gguf.End: -100}},
		}, func(engine.Token) error { return nil })
		if err != nil {
			t.Errorf("the client that stayed: %v", err)
		}
	})
	streams.Go(func() { _, _, _ = tokensOf(ctx, m, engine.Generation{Prompt: longPrompt[1:], MaxTokens: 20}) })
	streams.Wait()
	if !shared {
		t.Error("the two clients had no micro-batch in common")
	}
}

// A client may leave, and the model may be closed, after the scheduler has checked the contexts of a
// micro-batch and before it is computed.
func TestClientsGoneBeforeTheirMicroBatch(t *testing.T) {
	stays, leaves := &sequence{ctx: t.Context()}, &sequence{}
	ctx, leave := context.WithCancel(t.Context())
	leaves.ctx = ctx
	c := &computation{flag: abortFlag{pin(make([]uint32, 1))}}
	defer c.flag.free()
	leave()
	c.abandon() // while nothing is computed
	check := func(name string, want uint32, sequences ...*sequence) {
		t.Helper()
		c.setSequences(sequences)
		if got := atomic.LoadUint32(&c.flag.word.values[0]); got != want {
			t.Errorf("%s: the flag is %d, want %d", name, got, want)
		}
	}
	check("all have gone", 1, leaves)
	check("one stays", 0, leaves, stays)
	check("nothing is computed", 0)
	c.close()
	check("the model is being closed", 1, stays)
}

// Texts are split into tokens while another one is embedded, which may take seconds.
func TestEmbeddingDelaysNoPrompts(t *testing.T) {
	m := loadLayers(t, engine.Options{Threads: 1, Sequences: 1})
	m.mu.RLock() // as a text that is being split
	defer m.mu.RUnlock()
	ended := make(chan error, 1)
	go func() {
		_, err := m.Embed(t.Context(), longPrompt)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("an embedding waits for the texts that are being split, and so do they for it")
	}
}

// The library asks the flag, and removes the micro-batch that it gives up.
func TestFlagEndsComputation(t *testing.T) {
	m := loadLayers(t, engine.Options{Threads: 1, Sequences: 1})
	b := newBatch(4)
	defer b.free()
	for i := range 4 {
		b.add(longPrompt[i], i, 0, i == 3)
	}
	for flag, want := range []int32{0, decodeAborted, 0} {
		m.abort.set(uint32(flag & 1))
		if r := int32(m.lib.callStruct(fnDecode, b.params(), m.context)); r != want {
			t.Errorf("llama_decode returned %d with the flag %d, want %d", r, flag&1, want)
		}
		m.lib.call(fnMemoryRemove, m.memory, 0, 0, ^uintptr(0))
	}
}
