package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

const kernelsManifest = `app: kernels
functions:
  alone: {module: kernels.wasm, env: {DEVICE: part}, imports: [{device: part}], limits: {deadline: 2m}}
  together: {module: kernels.wasm, env: {DEVICE: part}, imports: [{device: part, share: true}], limits: {deadline: 2m}}
  kept: {module: kernels.wasm, env: {DEVICE: kept}, imports: [{device: kept, share: true}], limits: {deadline: 2m}}
  whole: {module: kernels.wasm, env: {DEVICE: whole}, imports: [{device: whole}], limits: {deadline: 3s}}
  patient: {module: kernels.wasm, env: {DEVICE: whole}, imports: [{device: whole}], limits: {deadline: 2m}}
  brief: {module: kernels.wasm, env: {DEVICE: whole}, imports: [{device: whole}], limits: {deadline: 1s}}
  hurried: {module: kernels.wasm, env: {DEVICE: hurried}, imports: [{device: hurried}], limits: {deadline: 2m}}
  none: {module: kernels.wasm, env: {DEVICE: none}, imports: [{device: none}]}
  stranger: {module: kernels.wasm, env: {DEVICE: part}}
  dreamer: {module: kernels.wasm, env: {DEVICE: part}, imports: [{device: part}], limits: {window: 16MiB, deadline: 2m}}
devices:
  part: {type: cpu, memory: 64MiB}
  kept: {type: cpu, memory: 64MiB, keep: 2s}
  whole: {type: cpu, select: "units>0"}
  hurried: {no-wait: true}
  none: {type: custom}
workflows: {steps: steps.yaml}
`

const kernelsWorkflow = `document: {dsl: '1.0.0', namespace: e2e, name: steps, version: '1.0.0'}
do: [{compute: {call: dreamer, with: {body: 'arena 100000'}}}]
`

// kernelPool is harbour, which has the device, and dinghy, where functions run. Dinghy is the first, so
// that the pool's state outlives harbour without a third node, which would compile the functions too.
func kernelPool(t *testing.T) *rig.Rig {
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "dinghy", Devices: "none"}, {Name: "harbour"}}})
	dir := t.TempDir()
	goGuest(t, "kernels", filepath.Join(dir, "kernels.wasm"))
	for name, text := range map[string]string{"app.yaml": kernelsManifest, "steps.yaml": kernelsWorkflow} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := r.Node("dinghy").Output(t.Context(), "deploy", filepath.Join(dir, "app.yaml")); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	served(t, r.Node("dinghy"))
	served(t, r.Node("harbour"))
	return r
}

// Functions of one node use a device of another one, and of their own.
func TestFunctionDevices(t *testing.T) {
	beside(t)
	r := kernelPool(t)
	for _, name := range []string{"dinghy", "harbour"} {
		t.Run(name, func(t *testing.T) { useDevice(t, r.Node(name)) })
	}
	n := r.Node("dinghy")
	t.Run("print", func(t *testing.T) { printOnDevice(t, n) })
	t.Run("together", func(t *testing.T) { shareDevice(t, n) })
	t.Run("deadline", func(t *testing.T) { outlastDevice(t, n) })
	t.Run("workflow", func(t *testing.T) { stepOnDevice(t, n) })
	t.Run("process dies", func(t *testing.T) { processDies(t, n) })
	t.Run("node dies", func(t *testing.T) { deviceDies(t, r) })
}

// call calls a function.
func call(t *testing.T, n *rig.Node, function, request string) (client.CallCost, string, error) {
	t.Helper()
	answer, cost, err := (&client.Client{Data: n.Data()}).Invoke(t.Context(), client.Invocation{App: "kernels", Function: function, Body: strings.NewReader(request)})
	if err != nil {
		return cost, "", err
	}
	defer answer.Close()
	body, err := io.ReadAll(answer)
	return cost, string(body), err
}

// useDevice calls functions of a node. What the device's own node does no differently than others is
// tried from another one only: each lease costs a session.
func useDevice(t *testing.T, n *rig.Node) {
	tests := []struct{ function, request, want, failure string }{
		{"alone", "triple 1000", "1000 right", ""},
		{"alone", "triple 1000000", "1000000 right", ""},
		{"together", "triple 1000", "1000 right", ""},
		{"alone", "twice 1000", "1000 right", ""},
		{"kept", "triple 1000", "1000 right", ""},
		{"kept", "triple 10", "10 right", ""},
		{"patient", "triple 1000", "1000 right", ""},
		{"hurried", "twice 1000", "1000 right", ""},
		{"alone", "room 60000000", "there is", ""},
		{"alone", "room 70000000", "", "are more than the device's memory for this lease, 64MiB"},
		{"alone", "wrong", "", "CL_BUILD_PROGRAM_FAILURE (-11): the build's log:"},
		{"stranger", "triple 1", "", `add "- device: part" to functions.stranger.imports in the manifest of app kernels`},
		{"none", "triple 1", "", `no device meets "type=custom"`},
	}
	if n.Name == "harbour" {
		tests = tests[:3]
	}
	for _, test := range tests {
		cost, body, err := call(t, n, test.function, test.request)
		switch {
		case test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)):
			t.Errorf("%s %s: got %v, want %s", test.function, test.request, err, test.failure)
		case test.failure == "" && (err != nil || body != test.want):
			t.Errorf("%s %s: got %q, %v", test.function, test.request, body, err)
		case test.failure == "" && (len(cost.Imports) != 1 || cost.Imports[0].Bytes == 0 && test.want != "there is" || cost.Imports[0].Calls < 2 ||
			cost.Imports[0].Waited > cost.Imports[0].Took || cost.Imports[0].Shared != (test.function == "together" || test.function == "kept")):
			t.Errorf("%s %s: cost %+v", test.function, test.request, cost)
		}
	}
	var info struct {
		Node   outboard.NodeID
		Memory outboard.Bytes
	}
	_, text, err := call(t, n, "alone", "info")
	if json.Unmarshal([]byte(text), &info) != nil || info.Node != "harbour" || info.Memory != 64<<20 {
		t.Errorf("got %s, %v", text, err)
	}
	noLeases(t, n)
}

// printOnDevice wants what kernels print in the log of the function that launched them.
func printOnDevice(t *testing.T, n *rig.Node) {
	for _, function := range []string{"alone", "together"} {
		if _, body, err := call(t, n, function, "print 3"); err != nil || body != "printed" {
			t.Errorf("%s: got %q, %v", function, body, err)
		}
		for i := range 3 {
			text, line := "", fmt.Sprintf("item %d says hello\n", i)
			eventually(t, "the log has the line of a work-item", func() (ok bool) {
				var err error
				text, err = n.Output(t.Context(), "logs", "kernels/"+function)
				return err == nil && strings.Contains(text, line)
			})
			if count := strings.Count(text, line); count != 1 {
				t.Errorf("the log of %s has %q %d times\n%s", function, line, count, text)
			}
		}
	}
	if _, body, err := call(t, n, "alone", "print 10000"); err != nil || body != "printed" {
		t.Errorf("got %q, %v", body, err)
	}
	noLeases(t, n)
}

// noLeases waits until all leases are given back, and all sessions over.
func noLeases(t *testing.T, n *rig.Node) {
	t.Helper()
	c := &client.Client{Data: n.Data()}
	eventually(t, "the leases are given back", func() bool {
		leases, err := c.Leases(t.Context())
		sessions, failed := c.Sessions(t.Context())
		return err == nil && failed == nil && len(leases) == 0 && len(sessions) == 0
	})
}

// shareDevice has calls use one lease, and others one each.
func shareDevice(t *testing.T, n *rig.Node) {
	// On a busy machine one call may be over before the last begins: longer ones overlap.
	for function, want := range map[string]int{"together": 1, "alone": 3} {
		most, seen := 0, outboard.Lease{}
		for turns := 200; turns <= 3200 && most < want; turns *= 2 {
			most, seen = leasesDuring(t, n, function, turns)
			noLeases(t, n)
		}
		if most != want || seen.Program != "default/kernels/"+function || seen.Holder != outboard.NodeID(n.Name) {
			t.Errorf("%s: %d leases at a time, want %d; the first is %+v", function, most, want, seen)
		}
	}
}

// leasesDuring makes three calls beside each other and returns how many leases there were at a time.
func leasesDuring(t *testing.T, n *rig.Node, function string, turns int) (most int, seen outboard.Lease) {
	t.Helper()
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			if _, body, err := call(t, n, function, fmt.Sprint("turn ", turns)); err != nil || body != "turned" {
				t.Errorf("%s: got %q, %v", function, body, err)
			}
		})
	}
	ended := make(chan struct{})
	go func() { calls.Wait(); close(ended) }()
	for {
		leases, err := (&client.Client{Data: n.Data()}).Leases(t.Context())
		if err == nil && len(leases) > most {
			most, seen = len(leases), leases[0]
		}
		select {
		case <-ended:
			return most, seen
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// outlastDevice has a device work for longer than a call may take, and other calls refused or waiting
// for it meanwhile.
func outlastDevice(t *testing.T, n *rig.Node) {
	refused := func(function, want string) bool {
		_, _, err := call(t, n, function, "triple 1")
		return err != nil && strings.Contains(err.Error(), want)
	}
	// On a busy machine the first call's deadline may come before the others have been made.
	const rounds = 6
	hurried, brief := false, false
	for round := 0; round < rounds && (!hurried || !brief); round++ {
		ended := make(chan error, 1)
		go func() {
			_, _, err := call(t, n, "whole", "turn 4000000")
			ended <- err
		}()
		c := &client.Client{Data: n.Data()}
		eventually(t, "the device is leased, or its lease has ended", func() bool {
			leases, err := c.Leases(t.Context())
			return err == nil && len(leases) == 1 || len(ended) > 0
		})
		hurried = hurried || refused("hurried", "all devices that fit are leased: harbour/opencl/0 by node dinghy (default/kernels/whole)")
		brief = brief || refused("brief", "ms for a device: place 1 in the queue, and all devices that fit are leased: harbour/opencl/0 by node dinghy (default/kernels/whole)")
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "deadline limit of 3s reached") {
			t.Errorf("got %v, want the deadline", err)
		}
		noLeases(t, n)
	}
	if !hurried || !brief {
		t.Errorf("in %d rounds calls were told the holder of the device: %v without waiting, %v after their deadline", rounds, hurried, brief)
	}
	if _, body, err := call(t, n, "patient", "triple 10"); err != nil || body != "10 right" {
		t.Errorf("afterwards: got %q, %v", body, err)
	}
	noLeases(t, n)
}

// stepOnDevice is a step of a workflow whose data lies in the arena.
func stepOnDevice(t *testing.T, n *rig.Node) {
	c := &client.Client{Data: n.Data()}
	e, err := c.RunWorkflow(t.Context(), client.RunRequest{App: "kernels", Workflow: "steps", Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	text, err := n.Output(t.Context(), "executions", "show", e.ID)
	if err != nil || !strings.Contains(text, "device:part") || !strings.Contains(text, " (waited ") {
		t.Errorf("the execution shows no import: %v\n%s", err, text)
	}
	if len(e.Steps) != 1 || len(e.Steps[0].Imports) != 1 || e.Steps[0].Imports[0].Bytes < 800_000 {
		t.Errorf("got %+v", e.Steps)
	}
	noLeases(t, n)
}

// processDies wants the leases of a tenant's process to end with it.
func processDies(t *testing.T, n *rig.Node) {
	done := make(chan error, 1)
	go func() {
		_, _, err := call(t, n, "alone", "turn 4000000")
		done <- err
	}()
	c := &client.Client{Data: n.Data()}
	eventually(t, "the device is leased", func() bool {
		leases, err := c.Leases(t.Context())
		return err == nil && len(leases) == 1
	})
	if err := syscall.Kill(tenantOf(t, n), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the call outlives its process")
	}
	noLeases(t, n)
	eventually(t, "the app is served again", func() bool {
		_, body, err := call(t, n, "alone", "triple 10")
		return err == nil && body == "10 right"
	})
	noLeases(t, n)
}

// tenantOf is the process id of the only tenant's process of a node.
func tenantOf(t *testing.T, n *rig.Node) int {
	t.Helper()
	status, err := (&client.Client{Data: n.Data()}).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	children, err := exec.CommandContext(t.Context(), "ps", "--ppid", strconv.Itoa(status.PID), "-o", "pid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(children)) {
		if fields := strings.Fields(line); strings.HasSuffix(strings.TrimSpace(line), "internal tenant") {
			pid, err := strconv.Atoi(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("%s has no tenant's process:\n%s", n.Name, children)
	return 0
}

// deviceDies wants a call whose device dies to end with an error, and nothing else to end.
func deviceDies(t *testing.T, r *rig.Rig) {
	n, done := r.Node("dinghy"), make(chan error, 1)
	go func() {
		_, _, err := call(t, n, "alone", "turn 4000000")
		done <- err
	}()
	c := &client.Client{Data: n.Data()}
	eventually(t, "the device is leased", func() bool {
		leases, err := c.Leases(t.Context())
		return err == nil && len(leases) == 1
	})
	pause(t.Context(), 500*time.Millisecond)
	if err := r.Node("harbour").Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "harbour/opencl/0") {
			t.Errorf("got %v, want an error that names the device", err)
		}
	case <-time.After(patience):
		t.Error("the call goes on")
	}
	if _, _, err := call(t, n, "stranger", "info"); err == nil || !strings.Contains(err.Error(), "add \"- device: part\"") {
		t.Errorf("the app is not served any more: %v", err)
	}
	// The device is there for functions again when its node is.
	if err := r.Node("harbour").Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the device is back", func() bool {
		_, body, err := call(t, n, "alone", "triple 10")
		return err == nil && body == "10 right"
	})
}
