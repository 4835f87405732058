package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// drawFrom returns a random text of the grammar of a schema.
func drawFrom(t *testing.T, r *rand.Rand, schema string) (string, any) {
	t.Helper()
	root, err := parse([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := &compiler{root: root, refs: map[string]ref{}}
	n, err := c.compile(root, "#")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	rules := map[string]node{}
	for _, rule := range c.rules {
		rules[rule.name] = rule.node
	}
	var b strings.Builder
	drawWith(r, &b, n, rules)
	d := json.NewDecoder(strings.NewReader(b.String()))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s generates %s: %v", schema, b.String(), err)
	}
	return b.String(), v
}

// TestMultiples: each number of a schema with multipleOf is a multiple within the limits.
func TestMultiples(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // texts for a test
	for _, c := range []struct {
		schema, divisor string
		low, high       string // "" for none
	}{
		{`{"type":"integer","multipleOf":5}`, "5", "", ""},
		{`{"type":"integer","multipleOf":7,"minimum":0}`, "7", "0", ""},
		{`{"type":"number","multipleOf":3,"exclusiveMinimum":0}`, "3", "1", ""},
		{`{"type":"integer","multipleOf":1200}`, "1200", "", ""},
		{`{"type":"integer","multipleOf":100,"minimum":-9007199254740991,"maximum":9007199254740991}`, "100", "", ""},
		{`{"type":"integer","multipleOf":250,"minimum":-700,"maximum":1300}`, "250", "-700", "1300"},
		{`{"type":"integer","multipleOf":97}`, "97", "", ""},
		{`{"type":"integer","multipleOf":1234567,"minimum":0,"maximum":100000000}`, "1234567", "0", "100000000"},
		{`{"type":"number","multipleOf":0.01}`, "1/100", "", ""},
		{`{"type":"number","multipleOf":0.1,"minimum":-2,"maximum":3}`, "1/10", "-2", "3"},
		{`{"type":"integer","multipleOf":1}`, "1", "", ""},
	} {
		for range 100 {
			text, _ := drawFrom(t, r, c.schema)
			n, ok := new(big.Rat).SetString(text)
			divisor, _ := new(big.Rat).SetString(c.divisor)
			if !ok || !new(big.Rat).Quo(n, divisor).IsInt() {
				t.Errorf("%s generates %s", c.schema, text)
			}
			for i, limit := range []string{c.low, c.high} {
				if l, ok := new(big.Rat).SetString(limit); ok && n.Cmp(l)*(1-2*i) < 0 {
					t.Errorf("%s generates %s", c.schema, text)
				}
			}
		}
	}
}

// TestUniqueItems: no value of an array with uniqueItems occurs twice, and all numbers of values do.
func TestUniqueItems(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // texts for a test
	for schema, want := range map[string]string{
		`{"type":"array","uniqueItems":true,"items":{"enum":["a","b","a","c",1,1.0]}}`:                                 "[0 1 2 3 4]",
		`{"type":"array","uniqueItems":true,"items":{"type":"string","enum":["a",2,"b","c"]},"minItems":2}`:            "[2 3]",
		`{"type":"array","uniqueItems":true,"items":{"$ref":"#/$defs/e"},"maxItems":2,"$defs":{"e":{"enum":[1,2,3]}}}`: "[0 1 2]",
		`{"type":"array","uniqueItems":true,"items":{"type":"boolean"},"minItems":1}`:                                  "[1 2]",
		`{"type":"array","uniqueItems":true,"items":{"type":"string"},"maxItems":1}`:                                   "[0 1]",
		`{"type":"array","uniqueItems":false,"items":{"const":1},"minItems":2,"maxItems":2}`:                           "[2]",
	} {
		var lengths []int
		for range 500 {
			text, v := drawFrom(t, r, schema)
			list, _ := v.([]any)
			seen := map[string]bool{}
			for _, item := range list {
				seen[fmt.Sprint(item)] = true
			}
			if !strings.Contains(schema, "false") && len(seen) != len(list) {
				t.Errorf("%s generates %s", schema, text)
			}
			lengths = append(lengths, len(list))
		}
		slices.Sort(lengths)
		if got := fmt.Sprint(slices.Compact(lengths)); got != want {
			t.Errorf("%s generates arrays of %s items, want %s", schema, got, want)
		}
	}
}

// TestPropertyNames: names of members obey their schema, which Zod writes for its records.
func TestPropertyNames(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // texts for a test
	for schema, want := range map[string]string{
		`{"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"type":"number"}}`:                   ``,
		`{"type":"object","propertyNames":{"pattern":"^[a-z]{1,3}$"},"additionalProperties":{"type":"boolean"}}`:         `^[a-z]{1,3}$`,
		`{"propertyNames":{"$ref":"#/$defs/n"},"additionalProperties":{"type":"null"},"$defs":{"n":{"enum":["a","b"]}}}`: `^[ab]$`,
	} {
		for range 50 {
			text, v := drawFrom(t, r, schema)
			for name := range v.(map[string]any) { //nolint:forcetypeassert // the schema is of an object
				if !regexp.MustCompile(want).MatchString(name) {
					t.Errorf("%s generates %s", schema, text)
				}
			}
		}
	}
}
