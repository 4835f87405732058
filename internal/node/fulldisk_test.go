package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/disktest"
	"github.com/outboard-run/outboard/outboardtest"
)

// TestFullDisk fills the disk of a node that runs workflows, and frees it again. Meanwhile health,
// the status and refused starts say so; afterwards everything that was acknowledged ends.
func TestFullDisk(t *testing.T) { disktest.Run(t, 48<<20, testFullDisk) }

func testFullDisk(t *testing.T, dir string) {
	t.Setenv("TMPDIR", dir)
	n := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}}}).Node("harbour")
	deployWaiting(t, n)
	c := n.Client()
	var started []string
	start := func() error {
		e, err := c.RunWorkflow(t.Context(), client.RunRequest{App: "patient", Workflow: "steps"})
		if err == nil {
			started = append(started, e.ID)
		}
		return err
	}
	for range 5 {
		if err := start(); err != nil {
			t.Fatal(err)
		}
	}
	if code, text := healthOf(t, n); code != http.StatusOK {
		t.Fatalf("health before: %d %s", code, text)
	}
	filler := disktest.Fill(t, dir)
	var refused error
	for refused == nil {
		refused = start()
	}
	if kind := outboard.KindOf(refused); kind != outboard.Unreachable && kind != outboard.Exhausted || strings.Contains(refused.Error(), dir) {
		t.Errorf("a start was refused with %v", refused)
	}
	for _, part := range []string{"state", "disk"} {
		eventually(t, "health names the part "+part, func() bool {
			code, text := healthOf(t, n)
			return code == http.StatusServiceUnavailable && strings.Contains(text, fmt.Sprintf("%q:%q", "part", part)) && !strings.Contains(text, dir)
		})
	}
	if out, err := n.Command(t.Context(), "status").CombinedOutput(); err == nil || !strings.Contains(string(out), "free space") {
		t.Errorf("status: %v, %s", err, out)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node starts executions again", func() bool { return start() == nil })
	eventually(t, "the node is in good health", func() bool { code, _ := healthOf(t, n); return code == http.StatusOK })
	for _, id := range started {
		eventually(t, "execution "+id+" completes", func() bool {
			e, err := c.Execution(t.Context(), id, false)
			return err == nil && e.State == "completed"
		})
	}
}

// deployWaiting deploys an app with a workflow that waits between its steps.
func deployWaiting(t *testing.T, n *outboardtest.Node) {
	t.Helper()
	app := t.TempDir()
	for name, text := range map[string]string{
		"app.yaml": "app: patient\nworkflows: {steps: steps.yaml}\n",
		"steps.yaml": `document: {dsl: '1.0.0', namespace: test, name: steps, version: '1.0.0'}
do: [{a: {wait: {milliseconds: 300}}}, {b: {set: {n: 2}}}, {c: {wait: {milliseconds: 300}}}, {d: {set: {n: 3}}}]
`,
	} {
		if err := os.WriteFile(filepath.Join(app, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := n.Command(t.Context(), "deploy", filepath.Join(app, "app.yaml")).CombinedOutput(); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
}

// healthOf is the answer of /healthz on the node's socket.
func healthOf(t *testing.T, n *outboardtest.Node) (int, string) {
	t.Helper()
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(n.Data, client.SocketName))
	}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := web.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	var text json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&text); err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
