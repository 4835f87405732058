package repository

import (
	"strings"
	"testing"
	"time"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig("model.yaml", []byte("batching: {max: 16, delay: 2ms}\nmemory: 512MiB\nnan: refuse\n"))
	if err != nil || c.Batching.Max != 16 || time.Duration(c.Batching.Delay) != 2*time.Millisecond || c.Memory != 512<<20 || c.NaN != "refuse" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ParseConfig("model.yaml", nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// Errors name file and line.
func TestParseConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"engine: onnx\nfoo: 1\n":         "model.yaml:2: field foo: there is no such setting",
		"batching:\n  max: -1\n":         "model.yaml:2: max: -1: want 0 to 65536",
		"batching:\n  delay: soon\n":     `model.yaml:2: "soon" is no duration`,
		"memory: much\n":                 "model.yaml:1: ",
		"nan: maybe\n":                   `model.yaml:1: nan: "maybe": want refuse or allow`,
		"aliases: [a, ../b]\n":           `model.yaml:1: aliases: "../b" can't be the name of a model`,
		"engine: [\n":                    "model.yaml:",
		"batching:\n  max: x\n":          "model.yaml:2: x: want a whole number",
		"batching: 3\n":                  "model.yaml:1: 3: want settings, such as `max: 16`",
		"threads: [1]\n":                 "model.yaml:1: want a whole number",
		"aliases: digits\n":              "model.yaml:1: digits: want a list of names",
		"threads: 1\n---\nthreads: 2\n":  "model.yaml:2: a second document",
		"[]\n":                           "model.yaml:1: want settings, such as `memory: 512MiB`",
		strings.Repeat("#", maxConfig+1): "at most",
	} {
		_, err := ParseConfig("model.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("batching: {max: 16, delay: 2ms}\nmemory: 512MiB\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("model.yaml", text)
		if err == nil && c.validate() != nil {
			t.Errorf("an invalid configuration was accepted: %+v", c)
		}
	})
}
