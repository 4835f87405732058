package yamlerror

import (
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestCheckWhole(t *testing.T) {
	type inner struct {
		Count int       `yaml:"count"`
		Share float64   `yaml:"share"`
		Sizes []uint    `yaml:"sizes,omitempty"`
		Each  []float64 `yaml:"each"`
	}
	type outer struct {
		Ranks int            `yaml:"ranks"`
		Plan  *inner         `yaml:"plan"`
		Names map[string]int `yaml:"names"`
		Text  string         `yaml:"text"`
	}
	for text, want := range map[string]string{
		"ranks: 2.5": "line 1: 2.5: want a whole number",
		"text: 1.5\nplan:\n  share: 0.5\n  each: [1.5]\n  count: 0.1": "line 5: 0.1: want a whole number",
		"plan: {sizes: [1, 1.5]}":                                     "line 1: 1.5: want a whole number",
		"names: {a: 1, b: 2.5}":                                       "line 1: 2.5: want a whole number",
		"ranks: 1e3\nplan: {count: 2.0, share: 1}":                    "",
		"unknown: 1.5\n":                                              "",
	} {
		var document yaml.Node
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := CheckWhole(&document, reflect.TypeFor[outer]()); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
