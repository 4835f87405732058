package llama_test

import (
	"os"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/llama"
)

// load loads a model, and skips the test where this build has no library.
func load(t *testing.T, source engine.Source, o engine.Options) engine.TextModel {
	t.Helper()
	m, err := (llama.Engine{}).Load(t.Context(), source, o)
	if outboard.KindOf(err) == outboard.NotFound && os.Getenv("OUTBOARD_TEST_REQUIRE") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.(engine.TextModel)
}

func TestContract(t *testing.T) { enginetest.Text(t, load) }
