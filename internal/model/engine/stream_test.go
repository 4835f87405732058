package engine_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// hostileUsages are counts that no engine returns: counters of metrics would end the node.
var hostileUsages = map[string]engine.Usage{
	"prompt": {PromptTokens: -1}, "cached": {CachedTokens: -1}, "generated": {GeneratedTokens: -1}, "many": {PromptTokens: math.MaxInt},
	"queued": {Queued: -1}, "prefill": {Prefill: math.MaxInt64}, "decode": {Decode: -time.Hour},
}

func TestHostileUsages(t *testing.T) {
	for name, u := range hostileUsages {
		if err := u.Validate(); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&engine.Usage{PromptTokens: 7, CachedTokens: 3, GeneratedTokens: 2, Queued: time.Second}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestHostileStatistics(t *testing.T) {
	for name, s := range map[string]engine.TextStats{
		"running": {Running: -1}, "room": {Room: math.MaxInt}, "parked": {ParkedBytes: -1}, "sum": {GeneratedTokens: -1},
		"time": {PerToken: -1}, "prefixes": {Prefixes: make(engine.Prefixes, engine.MaxPrefixes+1)},
	} {
		if err := s.Validate(); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&engine.TextStats{Running: 1, StateUsage: 0.5, Prefixes: make(engine.Prefixes, engine.MaxPrefixes), OldestUse: time.Now()}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestHostileStreams(t *testing.T) {
	last := engine.Token{Last: engine.FinishStop}
	for name, c := range map[string]struct {
		max, context int
		tokens       []engine.Token
		valid        bool
	}{
		"all":                     {max: 2, tokens: []engine.Token{{}, last}, valid: true},
		"without a limit":         {tokens: make([]engine.Token, 10_000), valid: true},
		"more than requested":     {max: 2, tokens: make([]engine.Token, 3)},
		"more than the context":   {context: 4, tokens: make([]engine.Token, 4)},
		"as many as the context":  {context: 4, tokens: make([]engine.Token, 3), valid: true},
		"after the last":          {tokens: []engine.Token{last, {}}},
		"unknown reason":          {tokens: []engine.Token{{Last: "\xff"}}},
		"large texts":             {tokens: slices.Repeat([]engine.Token{{Text: strings.Repeat("x", 1<<20)}}, 256)},
		"candidates without text": {tokens: slices.Repeat([]engine.Token{{Top: make([]engine.Candidate, 1<<16)}}, 128)},
	} {
		emitted := 0
		emit := engine.NewStreamCheck(&engine.Generation{Prompt: []int32{1}, MaxTokens: c.max}, c.context).Emit(func(engine.Token) error {
			emitted++
			return nil
		})
		var err error
		for i := 0; i < len(c.tokens) && err == nil; i++ {
			err = emit(c.tokens[i])
		}
		if c.valid != (err == nil) || err != nil && outboard.KindOf(err) != outboard.Protocol || err != nil && emitted != len(c.tokens)-1 {
			t.Errorf("%s: %v after %d tokens", name, err, emitted)
		}
	}
}
