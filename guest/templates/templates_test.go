package templates_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/guest/templates"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/need"
)

// TestWrite writes, builds and runs a function in each language, as its README says.
func TestWrite(t *testing.T) {
	message := "GET /harbour HTTP/1.1\r\nHost: localhost\r\n\r\n"
	tests := map[string]struct {
		request, want string
		main          string
		fuel          int64 // 0: any
		pages         int64 // of memory that a call writes and the reset copies back, 0: any
	}{
		"go": {message, "hello harbour\n", "main.go", 4_700, 13},
		"c":  {"harbour", "hello harbour", "main.c", 0, 0},
		"as": {"harbour", "hello harbour", "assembly/index.ts", 0, 0},
	}
	for language, tt := range tests {
		t.Run(language, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "greeter")
			wrote, err := templates.Write(dir, language, "greeter")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(files(t, dir), wrote); diff != "" {
				t.Errorf("(-there +said):\n%s", diff)
			}
			if !slices.Contains(wrote, filepath.FromSlash(tt.main)) {
				t.Errorf("no %s in %v", tt.main, wrote)
			}
			runMake(t, dir, language)
			f := deploy(t, dir, checkManifest(t, dir))
			asked := 0
			meta := func(name string) (string, bool) {
				asked++
				value := map[string]string{"http": "1", "http.route": "/{name}\nharbour"}[name]
				return value, value != ""
			}
			p, err := f.Call(t.Context(), function.Request{Body: []byte(tt.request), Meta: meta})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(p.Body); !strings.HasSuffix(got, tt.want) {
				t.Errorf("got %q", got)
			}
			if tt.fuel > 0 && p.Cost.Fuel > tt.fuel {
				t.Errorf("the call took %d units of fuel, want no more than %d", p.Cost.Fuel, tt.fuel)
			}
			if asked > 1 {
				t.Errorf("the function asked %d times for metadata, want at most once", asked)
			}
			before := f.Counts().CopiedBack
			if _, err := f.Call(t.Context(), function.Request{Body: []byte(tt.request), Meta: meta}); err != nil {
				t.Fatal(err)
			}
			pages := (f.Counts().CopiedBack - before) / 4096
			if tt.pages > 0 && pages > tt.pages {
				t.Errorf("the call wrote to %d pages, want no more than %d", pages, tt.pages)
			}
			t.Logf("%d units of fuel, %d pages", p.Cost.Fuel, pages)
		})
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(dir, file)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func runMake(t *testing.T, dir, language string) {
	t.Helper()
	need.Program(t, "make")
	goals := []string{"greeter.wasm"}
	switch language {
	case "go":
		goals = append(goals, "test")
	case "c":
		need.Program(t, "clang")
		need.Program(t, "wasm-ld")
	case "as":
		need.Program(t, "npm")
		modules, _ := filepath.Abs("../as/node_modules")
		_, err := os.Stat(modules)
		need.Require(t, "asc", err == nil, "run npm ci in guest/as (`make test` does)")
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "make", append([]string{"-C", dir}, goals...)...)
	// Built like this test, the function shares its compiled packages.
	command.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-trimpath -vet=off")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func checkManifest(t *testing.T, dir string) *manifest.Manifest {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "app.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse("app.yaml", text, manifest.Options{File: func(name string) error {
		_, err := os.Stat(filepath.Join(dir, name))
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func deploy(t *testing.T, dir string, m *manifest.Manifest) *function.Function {
	t.Helper()
	about := m.App.Functions["greeter"]
	module, err := os.ReadFile(filepath.Join(dir, about.Module))
	if err != nil {
		t.Fatal(err)
	}
	r, err := function.Open(t.Context(), function.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := r.Deploy(t.Context(), module, function.Settings{
		Name: "greeter/greeter", Limits: function.Limits{Memory: about.Limits.Memory, Deadline: about.Limits.Deadline},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRefused(t *testing.T) {
	tests := map[string]struct {
		language, name string
		want           outboard.Kind
	}{
		"language":  {"cobol", "a", outboard.Invalid},
		"no name":   {"go", "", outboard.Invalid},
		"path":      {"go", "../a", outboard.Invalid},
		"upper":     {"go", "Cart", outboard.Invalid},
		"dash last": {"go", "cart-", outboard.Invalid},
		"long":      {"go", strings.Repeat("a", 64), outboard.Invalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			if _, err := templates.Write(dir, tt.language, tt.name); outboard.KindOf(err) != tt.want {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("a folder was made")
			}
		})
	}
}

func TestOverwrites(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.c"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := templates.Write(dir, "c", "cart")
	if outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("got %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "main.c")); string(b) != "mine" {
		t.Errorf("got %q", b)
	}
	if diff := cmp.Diff([]string{"main.c"}, files(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
