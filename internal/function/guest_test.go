package function

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/internal/function/image"
)

// guests builds each Go guest once per run of the tests.
var guests = struct {
	sync.Mutex
	built map[string][]byte
}{built: make(map[string][]byte)}

func goGuest(tb testing.TB, name string) []byte {
	tb.Helper()
	guests.Lock()
	defer guests.Unlock()
	if b := guests.built[name]; b != nil {
		return b
	}
	file := filepath.Join(tb.TempDir(), name+".wasm")
	build := exec.CommandContext(tb.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./testdata/"+name)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	guests.built[name] = b
	return b
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "outboard-function")
	if err != nil {
		panic(err)
	}
	cacheDir = dir
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// cacheDir keeps compiled guests from one runtime of the tests to the next.
var cacheDir string

func open(tb testing.TB, o Options) *Runtime {
	tb.Helper()
	o.CacheDir = cacheDir
	r, err := Open(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func deploy(tb testing.TB, r *Runtime, module []byte, l Limits) *Function {
	tb.Helper()
	f, err := r.Deploy(context.Background(), module, Settings{
		Name: "app/test", Limits: l, Args: []string{"test", "arg"}, Env: []Variable{{"COLOUR", "green"}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// methods are the ways of resetting that this kernel has.
func methods(tb testing.TB) map[string]image.Method {
	all := map[string]image.Method{"drop": image.Drop}
	r, _, err := image.NewResetter(image.Scan, 0)
	if err != nil {
		tb.Log(err)
		return all
	}
	_ = r.Close()
	all["scan"] = image.Scan
	return all
}
