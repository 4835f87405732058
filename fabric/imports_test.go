package fabric_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allowed are the modules that a program gains by importing this package, besides the
// standard library. Metrics, tracing, policies and the pool's state belong to the node.
var allowed = []string{
	"github.com/outboard-run/outboard",
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
	"google.golang.org/genproto/googleapis/rpc",
	"golang.org/x/net",
	"golang.org/x/sys",
	"golang.org/x/text",
}

// TestImports lists what is linked into a program that imports this package.
func TestImports(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{$.ImportPath}} {{.Path}}{{end}}", ".")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(out)) {
		path, module, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		found++
		if !slices.Contains(allowed, module) {
			t.Errorf("this package depends on %s of module %s", path, module)
		}
		if strings.HasPrefix(path, "github.com/outboard-run/outboard/client") {
			t.Errorf("this package depends on %s", path)
		}
	}
	if found < 10 {
		t.Fatalf("got %d packages of modules: the list is not what the test reads", found)
	}
}
