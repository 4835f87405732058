package yamlerror_test

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/yamlerror"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		source string
		line   int
		text   string
	}{
		{"a: 1\nb: ]\nc: 3\n", 2, "did not find expected node content"},
		{"a: 1\nb:\n  - c: d\n e: f\n", 4, "did not find expected key"},
		{"a: 1\nb: [1, 2\nc: 3\n", 2, "did not find expected ',' or ']'"},
		{"a: 1\nb: [\n\n", 2, "did not find expected node content"},
		{"a: 1\nb: c: d\n", 2, "mapping values are not allowed in this context"},
		{"a: 1\nb: @x\n", 2, "found character that cannot start any token"},
		{"a: 1\nb: 2\n\tc: 3\n", 3, "found a tab character that violates indentation"},
		{"a: \xff\n", 1, "invalid leading UTF-8 octet"},
	} {
		var n yaml.Node
		err := yaml.Unmarshal([]byte(c.source), &n)
		if err == nil {
			t.Errorf("%q has no error", c.source)
			continue
		}
		if line, text := yamlerror.Split(err, c.source); line != c.line || text != c.text {
			t.Errorf("%q: line %d: %s; want line %d: %s", c.source, line, text, c.line, c.text)
		}
	}
}
