package grammar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/model/grammar"
)

// repeated returns n texts, which format makes of their indices, with commas between them.
func repeated(n int, format func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = format(i)
	}
	return strings.Join(parts, ",")
}

// TestHostileSchemas: a schema within the limit of its bytes that would take many times as much
// memory or time is refused.
func TestHostileSchemas(t *testing.T) {
	constant := func(text string) func(int) string { return func(int) string { return text } }
	reference := func(i int) string { return fmt.Sprintf(`{"$ref":"#%s$defs/a"}`, strings.Repeat("/", 1+i)) }
	for name, c := range map[string]struct{ schema, want string }{
		"limit with a million digits":    {`{"type":"integer","minimum":1e-1000000}`, "exponent"},
		"constant with a million digits": {`{"type":"integer","enum":[1e1000000]}`, "exponent"},
		"long number":                    {`{"const":1` + strings.Repeat("0", 1000) + `}`, "characters"},
		"required once for each reference": {
			`{"$defs":{"a":{"properties":{"x":{}},"required":[` + repeated(20_000, constant(`"x"`)) + `]}},"allOf":[` + repeated(4_000, constant(`{"$ref":"#/$defs/a"}`)) + `]}`, "too large",
		},
		"properties compared for each reference": {
			`{"$defs":{"a":{"properties":{"x":{"const":"` + strings.Repeat("x", 100_000) + `"}}}},"allOf":[` + repeated(4_000, constant(`{"$ref":"#/$defs/a"}`)) + `]}`, "too large",
		},
		"constants for each spelling of a reference": {
			`{"$defs":{"a":{"const":"` + strings.Repeat("x", 100_000) + `"}},"type":"array","prefixItems":[` + repeated(100, reference) + `]}`, "too large",
		},
		"long name for each item": {
			`{"properties":{"` + strings.Repeat("x", 100_000) + `":{"prefixItems":[` + repeated(3_000, constant(`{"items":{}}`)) + `]}}}`, "too large",
		},
		"limits of many numbers": {`{"prefixItems":[` + repeated(9_000, constant(`{"minimum":1,"maximum":7e14}`)) + `]}`, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := grammar.FromSchema([]byte(c.schema))
			if err == nil {
				t.Fatalf("%d bytes were compiled to %d", len(c.schema), len(text))
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.300v, want %q", err, c.want)
			}
		})
	}
}

// TestNamesAreNoRefusals: an error can't be mistaken for another one because of a name in the schema.
func TestNamesAreNoRefusals(t *testing.T) {
	schema := `{"anyOf":[{"type":"null"},{"properties":{"nothing satisfies it":{"not":{}}}}]}`
	if text, err := grammar.FromSchema([]byte(schema)); err == nil {
		t.Errorf("a keyword that is not supported was ignored: %s", text)
	}
}
