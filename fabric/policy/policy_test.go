package policy_test

import (
	"errors"
	"testing"

	"github.com/outboard-run/outboard/fabric/policy"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		line int // of the first mistake; 0: none
	}{
		"accepted":        {"policies: [{name: short, timeout: 2s}]", 0},
		"empty":           {"", 1},
		"balancing":       {"balance:\n- method: weighted\npolicies: []\n", 0},
		"a wrong rule":    {"policies: []\nbalance:\n- choices: 0\n", 3},
		"unknown rule":    {"policies: []\nbalance:\n- choice: 0\n", 3},
		"unknown member":  {"policies:\n- name: a\n  timout: 2s\n", 3},
		"module is asked": {"policies:\n- name: a\n  wasm: {module: a.wasm}\n", 3},
		"no YAML":         {"policies:\n\t- name: a\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := policy.Check("a.yaml", []byte(tt.text), policy.Options{})
			var first *policy.Error
			if (tt.line == 0) != (err == nil) || err != nil && (!errors.As(err, &first) || first.Line != tt.line || first.File != "a.yaml") {
				t.Errorf("got %v, want a mistake at line %d", err, tt.line)
			}
		})
	}
}
