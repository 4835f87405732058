package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func documentation(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// TestDocumentation parses all examples of the documentation, which have to be of
// every kind.
func TestDocumentation(t *testing.T) {
	shown := map[string]bool{}
	for _, block := range documentation(t, "yaml") {
		if !strings.HasPrefix(block, "policies:") {
			block = "policies:\n" + block
		}
		s, err := Parse("policies.md", []byte(block), shopFiles(t))
		if err != nil {
			t.Errorf("%v in:\n%s", err, block)
			continue
		}
		for _, p := range s.Policies() {
			shown[p.Kind] = true
			if p.Kind != "wasm" {
				continue
			}
			// On a busy machine the module may be out of its time before it has a processor.
			const late = "policy house-rules: the module took too long"
			message := late
			for attempt := 0; message == late && attempt < 100; attempt++ {
				_, err := (&visit{}).run(s)
				message = status.Convert(err).Message()
			}
			if message != "policy house-rules: who are you?" {
				t.Errorf("the module said: %s", message)
			}
		}
	}
	for kind := range kinds() {
		if !shown[kind] {
			t.Errorf("there is no example of %s", kind)
		}
	}
}

// TestModuleInGo builds the documentation's module and shows calls to it.
func TestModuleInGo(t *testing.T) {
	if raced {
		// To compile Go's runtime takes half a minute under the race detector.
		out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestModuleInGo$", ".").CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	folder := t.TempDir()
	source, wasm := filepath.Join(folder, "house.go"), filepath.Join(folder, "house.wasm")
	if err := os.WriteFile(source, []byte(documentation(t, "go")[0]), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", wasm, source)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	read := func(string) ([]byte, error) { return os.ReadFile(wasm) }
	text := "policies: [{name: house, wasm: {module: house.wasm, timeout: 10s}}]"
	s, err := ParseOptions("f", []byte(text), Options{Module: read})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := (&visit{metadata: metadata.Pairs("x-user", "ann")}).run(s); err != nil {
			t.Error(err)
		}
		if _, err := (&visit{}).run(s); code(err) != codes.Unauthenticated {
			t.Errorf("without a user: got %v", err)
		}
	}
}
