// Package stage deploys an example to a separate node, for the example's test: it builds the
// functions, starts a node and deploys the app, as described in the example's README.
package stage

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/need"
)

// program is the path of `outboard`, from an example's folder.
const program = "../../bin/outboard"

// App is a deployed example.
type App struct {
	// URL is the prefix of the app's routes, without a slash at the end.
	URL string
	// Node is a node of the pool.
	Node *rig.Node
}

// Deploy deploys the example in the test's own folder, until the test ends.
func Deploy(t *testing.T) *App {
	t.Helper()
	return deploy(t, "none")
}

// DeployWithDevices is Deploy on a node that offers this machine's devices. There must be at
// least one.
func DeployWithDevices(t *testing.T) *App {
	t.Helper()
	_, err := os.Stat("/etc/OpenCL/vendors/pocl.icd")
	need.Require(t, "opencl", err == nil, "install pocl-opencl-icd")
	const all = ""
	return deploy(t, all)
}

func deploy(t *testing.T, devices string) *App {
	t.Helper()
	_, err := os.Stat(program)
	need.Require(t, "outboard", err == nil, "run `make build`")
	node := start(t, devices)
	out, err := node.Output(t.Context(), "deploy", build(t))
	if err != nil {
		t.Fatal(err)
	}
	return &App{URL: address(t, out), Node: node}
}

// copied copies the program, so that a concurrent build does not replace it during the test.
func copied(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "outboard")
	if err := os.WriteFile(file, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func start(t *testing.T, devices string) *rig.Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "stage") // sockets lie in it, and their paths must be short
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := rig.Start(t.Context(), rig.Options{
		Binary: copied(t), Dir: dir, Loopback: true, Log: log,
		Nodes: []rig.Spec{{Name: "stage", Devices: devices, Args: []string{"--http", "127.0.0.1:0", "--grpc", "none"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the node said:\n%s", text)
		}
		_ = log.Close()
	})
	return r.Node("stage")
}

// build builds the functions beside a copy of the manifest and the workflows, and
// returns the manifest.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	texts, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range texts {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	functions, err := filepath.Glob("functions/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range functions {
		module := filepath.Join(dir, "build", filepath.Base(source)+".wasm")
		command := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", module, "./"+source)
		command.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return filepath.Join(dir, "app.yaml")
}

var route = regexp.MustCompile(`\S+://(\S+?/[a-z0-9-]+)`)

// address finds the app's address in the output of `outboard deploy`.
func address(t *testing.T, printed string) string {
	t.Helper()
	found := route.FindStringSubmatch(printed)
	if found == nil {
		t.Fatalf("no route in %q", printed)
	}
	return "http://" + strings.TrimSuffix(found[1], "/")
}
