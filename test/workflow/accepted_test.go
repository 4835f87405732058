package workflow

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/serverlessworkflow/sdk-go/v3/parser"
)

// What our parser accepts is part of the DSL: its reference implementation accepts every
// workflow of the tests and of the examples.
func TestReferenceParserAccepts(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../internal/workflow/dsl/testdata/*.yaml", "../../examples/thumbnails/thumbnail.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatal("no workflows: they are not where the test looks")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.FromYAMLSource(text); err != nil {
				t.Error(err)
			}
		})
	}
}
