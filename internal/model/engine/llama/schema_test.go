package llama_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/model/grammar"
)

// TestSchemasAreObeyed generates answers within random schemas on a model with random weights.
// OUTBOARD_TEST_SCHEMAS is their number; 1000 take a minute.
func TestSchemasAreObeyed(t *testing.T) {
	n := 25
	if text := os.Getenv("OUTBOARD_TEST_SCHEMAS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	source := enginetest.WriteModel(t, gguf.Random(gguf.Shape{Layers: 1, Width: 32, FeedForward: 32, Heads: 2, SharedHeads: 1, Context: 4096, Words: []string{`"`, `",`, `":`, "true", "null"}}, 5))
	m := load(t, source, engine.Options{Threads: 1, Sequences: 8, Context: 4096})
	defer func() { _ = m.Close() }()
	prompt, err := m.Tokenize(t.Context(), engine.Text{Content: "an answer:"})
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	for seed := range uint64(n) {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			schema := (&schemas{rand.New(rand.NewPCG(seed, 1))}).draw(3)
			text, err := json.Marshal(schema)
			if err != nil {
				t.Error(err)
				return
			}
			rules, err := grammar.FromSchema(text)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				return
			}
			a, err := enginetest.Generate(t.Context(), m, engine.Generation{Prompt: prompt, Grammar: rules, LogProbs: -1, Sampling: engine.Sampling{Temperature: 1, Seed: seed}})
			if err != nil {
				t.Errorf("%s: %v", text, err)
				return
			}
			var value any
			if err := json.Unmarshal([]byte(a.Text()), &value); err != nil {
				t.Errorf("%s: %q of %d tokens: %v", text, a.Text(), len(a.Tokens), err)
			} else if why := violation(schema, value); why != "" {
				t.Errorf("%s: %s: %s", text, a.Text(), why)
			}
		})
	}
	wait.Wait()
}

type schema = map[string]any

// schemas draws schemas.
type schemas struct{ *rand.Rand }

func (r *schemas) draw(depth int) schema {
	kinds := 6
	if depth > 0 {
		kinds = 9
	}
	switch r.IntN(kinds) {
	case 0:
		low := r.IntN(4)
		return schema{"type": "string", "minLength": low, "maxLength": low + r.IntN(12)}
	case 1:
		low := r.IntN(20000) - 10000
		return schema{"type": "integer", "minimum": low, "maximum": low + r.IntN(500)}
	case 2:
		low := r.IntN(50) - 25
		return schema{"type": "number", "minimum": low, "maximum": low + 1 + r.IntN(30)}
	case 3:
		return r.drawKeyword()
	case 4:
		return schema{"enum": []any{"a\"b", 1.5, nil, []any{"x"}, schema{"k": true}}[:1+r.IntN(5)]}
	case 5:
		return schema{"type": "string", "format": []string{"date", "uuid", "ipv4", "date-time"}[r.IntN(4)]}
	case 6:
		low := r.IntN(3)
		return schema{"type": "array", "items": r.draw(depth - 1), "minItems": low, "maxItems": low + r.IntN(3)}
	case 7:
		return schema{"anyOf": []any{r.draw(depth - 1), r.draw(depth - 1)}}
	default:
		return r.object(depth)
	}
}

// drawKeyword draws a schema with one of the keywords that few schemas have.
func (r *schemas) drawKeyword() schema {
	switch r.IntN(4) {
	case 0:
		return schema{"type": "string", "pattern": []string{`^[A-Z]{2}-\d{3,5}$`, `^(\w+\.)?\w+@[a-z]{1,9}\.(com|org)$`, `^"[^"]{0,9}"$`, `^(?:[äü€ ]|x)+\n?$`}[r.IntN(4)]}
	case 1:
		return schema{"type": "integer", "multipleOf": []int{5, 7, 100, 12}[r.IntN(4)]}
	case 2:
		return schema{"type": "array", "uniqueItems": true, "items": schema{"enum": []any{"a", "b", 1.0, true}}, "minItems": r.IntN(3), "maxItems": 4}
	default:
		return schema{"type": "boolean"}
	}
}

func (r *schemas) object(depth int) schema {
	properties, required := schema{}, []string{}
	for i := range r.IntN(5) {
		name := fmt.Sprintf("p\"%d", i)
		properties[name] = r.draw(depth - 1)
		if r.IntN(2) == 0 {
			required = append(required, name)
		}
	}
	return schema{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// violation returns why a value does not satisfy a schema of this file, "" if it does.
func violation(s schema, v any) string {
	if options, ok := s["anyOf"].([]any); ok {
		for _, o := range options {
			if violation(o.(schema), v) == "" {
				return ""
			}
		}
		return fmt.Sprintf("%v satisfies none of anyOf", v)
	}
	if enum, ok := s["enum"].([]any); ok {
		if !slices.ContainsFunc(enum, func(e any) bool { return equalJSON(e, v) }) {
			return fmt.Sprintf("%v is not in enum", v)
		}
		return ""
	}
	switch v := v.(type) {
	case string:
		low, limited := s["minLength"].(int)
		n := utf8.RuneCountInString(v)
		pattern, _ := s["pattern"].(string)
		if !regexp.MustCompile(pattern).MatchString(v) {
			return fmt.Sprintf("%q does not match %s", v, pattern)
		}
		if s["type"] != "string" || limited && (n < low || n > s["maxLength"].(int)) {
			return fmt.Sprintf("string %q", v)
		}
	case float64:
		if divisor, ok := s["multipleOf"].(int); ok {
			if math.Mod(v, float64(divisor)) != 0 {
				return fmt.Sprintf("%v is no multiple of %d", v, divisor)
			}
			return ""
		}
		if s["type"] != "integer" && s["type"] != "number" || s["type"] == "integer" && v != math.Trunc(v) || v < float64(s["minimum"].(int)) || v > float64(s["maximum"].(int)) {
			return fmt.Sprintf("number %v", v)
		}
	case bool:
		if s["type"] != "boolean" {
			return "a boolean"
		}
	case []any:
		return arrayViolation(s, v)
	case map[string]any:
		return objectViolation(s, v)
	default:
		return "null"
	}
	return ""
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func arrayViolation(s schema, list []any) string {
	if s["type"] != "array" || len(list) < s["minItems"].(int) || len(list) > s["maxItems"].(int) {
		return fmt.Sprintf("an array of %d", len(list))
	}
	for i, item := range list {
		if s["uniqueItems"] == true && slices.ContainsFunc(list[:i], func(other any) bool { return equalJSON(other, item) }) {
			return fmt.Sprintf("%v occurs twice", item)
		}
		if why := violation(s["items"].(schema), item); why != "" {
			return why
		}
	}
	return ""
}

func objectViolation(s schema, o map[string]any) string {
	if s["type"] != "object" {
		return "an object"
	}
	properties := s["properties"].(schema)
	for _, name := range s["required"].([]string) {
		if _, ok := o[name]; !ok {
			return name + " is missing"
		}
	}
	for name, v := range o {
		p, ok := properties[name].(schema)
		if !ok {
			return name + " is not declared"
		}
		if why := violation(p, v); why != "" {
			return strings.Join([]string{name, why}, ": ")
		}
	}
	return ""
}
