//go:build conformance

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// The published clients of models' interfaces pass the cases of test/models. They need PyPI and npm.
func TestConformanceModelClients(t *testing.T) {
	need.Program(t, "pip3")
	n := modelNode(t)
	status, err := (&client.Client{Data: n.Data()}).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	libraries := installPython(t, "tritonclient[grpc,http]==2.73.0", "openai==3.54.0", "ollama==0.6.3")
	t.Run("text in JavaScript", func(t *testing.T) { runJavaScript(t, "clients.cjs", "http://"+status.Models, "small") })
	for name, args := range map[string][]string{
		"tensors on one port":       {"tensors.py", status.Models, status.Models},
		"tensors on separate ports": {"tensors.py", status.GRPC, status.HTTP, "shared-memory-refused"},
		"text":                      {"clients.py", "http://" + status.Models, "small"},
	} {
		t.Run(name, func(t *testing.T) { runCases(t, libraries, args) })
	}
	key, err := n.Output(t.Context(), "keys", "create", "cases", "--admin") // which load and unload models
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OUTBOARD_KEY", strings.TrimSpace(key))
	t.Run("with a key", func(t *testing.T) {
		runCases(t, libraries, []string{"tensors.py", status.GRPC, status.Models, "shared-memory-refused"})
	})
	t.Run("kserve", func(t *testing.T) {
		runCases(t, installPython(t, "kserve==0.21.0"), []string{"kserveclient.py", status.Models})
	})
}

// The language model of the cases knows the pairs of bytes of a sentence, and no others: it has all
// that the answers of the cases need, also those within schemas.
const (
	sentence     = `the quick brown fox jumps over the lazy dog {"name": "weather", "arguments": {"city": "fox"}, "the": [true, false]} <tool_call>/`
	chatTemplate = "{% for m in messages %}{{ m.content }} {% endfor %}"
)

// modelNode returns a node that serves the models of the cases.
func modelNode(t *testing.T) *rig.Node {
	dir := t.TempDir()
	n := own(t, rig.Options{Loopback: true, Nodes: []rig.Spec{{
		Name: "harbour", Devices: "none", Args: []string{"--models", fmt.Sprintf("127.0.0.1:%d", statetest.FreePort(t)), "--models-shm"},
	}}}).Node("harbour")
	push := func(file string, content []byte) {
		path := filepath.Join(dir, file)
		write(t, path, content)
		name, _, _ := strings.Cut(file, ".")
		if out, err := n.Output(t.Context(), "models", "push", name, path); err != nil {
			t.Fatalf("push %s: %v: %s", file, err, out)
		}
	}
	push("mlp.onnx", onnxfile.MLP(1, 784, 64, 10).Encode())
	for kind := model.Bool; kind <= model.Bytes; kind++ {
		push("identity_"+strings.ToLower(kind.String())+".onnx", onnxfile.Unary("Identity", kind, "batch", 2).Encode())
	}
	var text strings.Builder
	_, err := gguf.CountBigram(sentence, 1024, chatTemplate).Builder().WriteTo(&text)
	if err != nil {
		t.Fatal(err)
	}
	push("small.gguf", []byte(text.String()))
	return n
}

// installPython returns a folder with libraries from PyPI.
func installPython(t *testing.T, libraries ...string) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "pip3", append([]string{"install", "--quiet", "--disable-pip-version-check", "--target", dir}, libraries...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("install %v: %v: %s", libraries, err, out)
	}
	return dir
}

// runJavaScript runs cases with the libraries of npm.
func runJavaScript(t *testing.T, args ...string) {
	need.Program(t, "npm")
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "openai@7.57.0", "ollama@0.6.4").CombinedOutput()
	if err != nil {
		t.Fatalf("install libraries: %v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "../models", append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules")), time.Second
	if out, err = cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	t.Logf("%s", out)
}

func runCases(t *testing.T, libraries string, args []string) {
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "../models", append(os.Environ(), "PYTHONPATH="+libraries), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	t.Logf("%s", out)
}
