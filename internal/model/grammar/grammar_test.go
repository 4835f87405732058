package grammar_test

import (
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/model/grammar"
)

func TestRefusalsNameTheField(t *testing.T) {
	for schema, want := range map[string]string{
		`{`:                                   "schema #: it is no JSON",
		`false`:                               "schema #: nothing satisfies it",
		`7`:                                   "an object or a boolean",
		`{"type":"strin"}`:                    "schema #/type",
		`{"type":"string","pattern":"(?=a)"}`: "schema #/pattern: ",
		`{"type":"string","format":"regex"}`:  "schema #/format",
		`{"type":"string","format":"uuid","maxLength":35}`: "have 36 to 36 characters",
		`{"enum":[]}`:                                                                "schema #/enum: nothing satisfies it",
		`{"type":"integer","enum":["a"]}`:                                            "schema #/enum: nothing satisfies it",
		`{"type":"integer","const":1.5}`:                                             "schema #/const: nothing satisfies it",
		`{"type":"array","minItems":3,"maxItems":2}`:                                 "schema #/minItems: nothing satisfies it",
		`{"type":"integer","minimum":5,"maximum":4}`:                                 "nothing satisfies it",
		`{"type":"integer","exclusiveMinimum":4,"maximum":4}`:                        "nothing satisfies it",
		`{"type":"object","properties":{"a/b":{"type":"array","uniqueItems":true}}}`: "schema #/properties/a~1b/uniqueItems",
		`{"type":"array","uniqueItems":true,"items":{"enum":[1,1.0]},"minItems":2}`:  "schema #/minItems: nothing satisfies it",
		`{"type":"integer","multipleOf":0}`:                                          "schema #/multipleOf: it must be a number above 0",
		`{"type":"integer","multipleOf":1.5}`:                                        "schema #/multipleOf: 1.5 is not supported",
		`{"type":"integer","multipleOf":7,"minimum":1,"maximum":6}`:                  "schema #/multipleOf: nothing satisfies it",
		`{"type":"integer","multipleOf":7,"minimum":0,"maximum":100000}`:             "more than 1000 multiples of 7",
		`{"type":"integer","multipleOf":1234567}`:                                    "add a minimum and a maximum",
		`{"type":"object","propertyNames":{"type":"integer"}}`:                       "schema #/propertyNames/type",
		`{"properties":{"A":{}},"propertyNames":{"pattern":"^[a-z]$"}}`:              "schema #/propertyNames",
		`{"type":"object","properties":{},"required":["x"]}`:                         "schema #/required",
		`{"$ref":"#/$defs/x"}`:                                                       `"#/$defs/x" does not exist`,
		`{"$ref":"http://example.org"}`:                                              "not within this schema",
		`{"$ref":"#"}`:                                                               "refers to itself",
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`:         "requires itself without an end",

		`{"anyOf":[]}`: "schema #/anyOf: nothing satisfies it",
		`{"anyOf":[{"type":"null"}],"type":"object"}`:      "schema #/type",
		`{"oneOf":[{"type":"integer"},{"type":"number"}]}`: "schema #/oneOf",

		`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},{"type":"object","properties":{"k":{"enum":["b","a"]}},"required":["k"]}]}`: "schema #/oneOf",
		`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},{"type":"object","properties":{"k":{"const":"b"}}}]}`:                       "schema #/oneOf",
		`{"oneOf":[{"type":"object","properties":{"k":{"const":1}},"required":["k"]},{"type":"object","properties":{"k":{"const":1.0}},"required":["k"]}]}`:        "schema #/oneOf",
		`{"oneOf":[{"$ref":"#/$defs/a"},{"type":"object"}],"$defs":{"a":{"$ref":"#/$defs/a"}}}`:                                                                    "schema #/oneOf",

		`{"not":{}}`: "schema #/not: this keyword is not supported",
		`{"allOf":[{"type":"string"},{"type":"object"}]}`:                  "schema #/allOf/0/type",
		strings.Repeat(`{"items":`, 100) + "{}" + strings.Repeat("}", 100): "nested more than",
	} {
		if _, err := grammar.FromSchema([]byte(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want %q", schema, err, want)
		}
	}
}

func TestAccepted(t *testing.T) {
	for _, schema := range []string{
		`true`, `{}`, `{"type":["string","null"]}`,
		`{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"]}`,
		`{"$defs":{"p":{"type":"object","properties":{"x":{"type":"integer"}}}},"type":"array","items":{"$ref":"#/$defs/p"}}`,
		`{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"null"}}}]}`,
		`{"oneOf":[{"const":"a"},{"const":"b"}]}`,
		`{"type":"string","format":"uri","minLength":1,"maxLength":2083}`, // Pydantic's HttpUrl
		// A discriminated union of Pydantic.
		`{"$defs":{"Cat":{"type":"object","properties":{"kind":{"const":"cat","type":"string"},"m":{"type":"boolean"}},"required":["kind","m"]},
		"Dog":{"type":"object","properties":{"kind":{"enum":["dog","wolf"],"type":"string"}},"required":["kind"]}},
		"oneOf":[{"$ref":"#/$defs/Cat"},{"$ref":"#/$defs/Dog"}],"discriminator":{"propertyName":"kind","mapping":{"cat":"#/$defs/Cat","dog":"#/$defs/Dog"}}}`,
		`{"type":"string","format":"date-time","description":"when"}`,
	} {
		if _, err := grammar.FromSchema([]byte(schema)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func FuzzFromSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"integer","minimum":-7,"maximum":1234}},"required":["a"]}`))
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"},"maxItems":3}}}`))
	f.Add([]byte(`{"allOf":[{"$ref":"#"}]}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		text, err := grammar.FromSchema(schema)
		if err == nil && !strings.Contains(text, "root ::= ") {
			t.Errorf("no root in %q", text)
		}
	})
}
