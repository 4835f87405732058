//go:build conformance

package optimize

import (
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
)

// TestConformanceGo runs tests of Go's own packages with direct jumps. They take long to compile.
func TestConformanceGo(t *testing.T) {
	for pkg, only := range map[string]string{
		"sort": "Test", "strconv": "Test", "encoding/json": "Test", "regexp": "Test[^R]", "image/draw": "Test[^P]",
		"runtime": "Defer|Recover|Panic|Goexit|Chan|Select",
	} {
		t.Run(pkg, func(t *testing.T) {
			r, err := Module(build(t, "test", "-c", pkg), Options{})
			if err != nil {
				t.Fatal(err)
			}
			out := command(t, wazero.NewRuntimeConfigCompiler(), r, "test", "-test.short", "-test.v", "-test.run", only)
			if !strings.HasSuffix(out, "PASS\n") || strings.Count(out, "--- PASS") < 5 {
				t.Errorf("got %s", out)
			}
		})
	}
}
