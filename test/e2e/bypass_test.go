package e2e

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
)

const inferManifest = `app: infer
functions:
  infer: {module: infer.wasm, imports: [{model: sign}], limits: {deadline: 2m}}
`

// A function that is the only client of a model calls its process without the node, which counts the
// calls. A new version of the model and another client make the calls go through the node.
func TestFunctionBypassesNode(t *testing.T) {
	beside(t)
	n := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}}}).Node("harbour")
	dir := t.TempDir()
	pushSign(t, n, dir, "Relu")
	goGuest(t, "infer", filepath.Join(dir, "infer.wasm"))
	write(t, filepath.Join(dir, "app.yaml"), []byte(inferManifest))
	if out, err := n.Output(t.Context(), "deploy", filepath.Join(dir, "app.yaml")); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	awaitBypassed(t, n, 1, "[0 0 1 2]")
	pushSign(t, n, dir, "Neg")
	if got := inferInFunction(t, n, 10); got != "[1 -0 -1 -2]" {
		t.Errorf("the next version: %s", got)
	}
	awaitBypassed(t, n, 2, "[1 -0 -1 -2]")
}

// pushSign makes a model with one operator the next version of the model sign.
func pushSign(t *testing.T, n *rig.Node, dir, operator string) {
	t.Helper()
	path := filepath.Join(dir, operator+".onnx")
	write(t, path, onnxfile.Unary(operator, model.FP32, "n", 4).Encode())
	if out, err := n.Output(t.Context(), "models", "push", "sign", path); err != nil {
		t.Fatalf("push: %v: %s", err, out)
	}
}

// inferInFunction returns the outputs of so many computations in one call of the function.
func inferInFunction(t *testing.T, n *rig.Node, computations int) string {
	t.Helper()
	answer, _, err := (&client.Client{Data: n.Data()}).Invoke(t.Context(), client.Invocation{App: "infer", Function: "infer", Body: strings.NewReader(strconv.Itoa(computations))})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	body, err := io.ReadAll(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// awaitBypassed calls the function until most of the computations of a call have bypassed the node,
// and holds each to its output.
func awaitBypassed(t *testing.T, n *rig.Node, version int, want string) {
	t.Helper()
	const computations = 500
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		all, byNode := countComputations(t, n, version)
		if got := inferInFunction(t, n, computations); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		allAfter, byNodeAfter := countComputations(t, n, version)
		if allAfter-all != computations {
			t.Fatalf("%v of %d computations are counted", allAfter-all, computations)
		}
		if byNodeAfter-byNode < computations/2 {
			return
		}
	}
	t.Fatal("the computations go through the node")
}

// countComputations returns the numbers of successful computations of a version, and of those of all
// versions that went through the node.
func countComputations(t *testing.T, n *rig.Node, version int) (all, byNode float64) {
	t.Helper()
	for line := range strings.Lines(getPage(t, n, "/metrics")) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, _ := strconv.ParseFloat(text, 64)
		switch name {
		case fmt.Sprintf(`nv_inference_request_success{model="sign",version="%d"}`, version):
			all = value
		case `outboard_model_request_seconds_count{model="sign"}`:
			byNode = value
		}
	}
	return all, byNode
}
