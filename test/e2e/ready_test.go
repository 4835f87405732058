package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

const readyManifest = `app: words
functions: {count: {module: words.wasm, http: false}}
workflows: {flow: flow.yaml}
routes: [{path: /, methods: [POST], function: count}]
`

// readyFlow differs from one version to the next: nodes have to fetch it.
const readyFlow = `document: {dsl: '1.0.0', namespace: words, name: flow, version: '1.0.%d'}
do: [{count: {call: count, with: {body: a}}}]
`

// A readyPool is three nodes and an app.
type readyPool struct {
	t     *testing.T
	nodes []*rig.Node
	dir   string
	made  int
}

func openReadyPool(t *testing.T) *readyPool {
	t.Helper()
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}, {Name: "buoy", Devices: "none"}}})
	p := &readyPool{t: t, nodes: []*rig.Node{r.Node("harbour"), r.Node("dinghy"), r.Node("buoy")}, dir: t.TempDir()}
	module, err := os.ReadFile("../../guest/testdata/rust/words.wasm")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.dir, "words.wasm"), module)
	write(t, filepath.Join(p.dir, "app.yaml"), []byte(readyManifest))
	return p
}

// deploy deploys another version, and returns what was said, and the status.
func (p *readyPool) deploy(flags ...string) (stdout, stderr string, status int) {
	p.t.Helper()
	p.made++
	write(p.t, filepath.Join(p.dir, "flow.yaml"), fmt.Appendf(nil, readyFlow, p.made))
	return p.command(append([]string{"deploy", p.dir}, flags...)...)
}

// command runs a command at the first node.
func (p *readyPool) command(args ...string) (stdout, stderr string, status int) {
	p.t.Helper()
	var out, words bytes.Buffer
	cmd := p.nodes[0].Command(p.t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &words
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	} else if err != nil {
		p.t.Fatal(err)
	}
	return out.String(), words.String(), status
}

func (p *readyPool) mustDeploy(flags ...string) string {
	p.t.Helper()
	out, words, status := p.deploy(flags...)
	if status != 0 {
		p.t.Fatalf("status %d: %s", status, words)
	}
	return out
}

// deployWithout deploys another version while a node does not answer. On a busy machine the other nodes
// may not be ready within a short --wait either: then it deploys once more, with a longer one.
func (p *readyPool) deployWithout(node outboard.NodeID) {
	p.t.Helper()
	for wait := 3 * time.Second; ; wait *= 2 {
		out, words, status := p.deploy("--wait", wait.String())
		want := fmt.Sprintf("app words, version %d, is applied, but after %v it is ready on 2 of 3 nodes only: %s does not answer; ", p.made, wait, node)
		switch {
		case status == exitUnreachable && out == "" && strings.Contains(words, want):
			return
		case wait > patience:
			p.t.Fatalf("status %d, %q, %q, want %q", status, out, words, want)
		}
	}
}

// wantNodes wants the nodes to be as far as that, as the first one tells.
func (p *readyPool) wantNodes(count string, states map[outboard.NodeID]string) {
	p.t.Helper()
	text, _, _ := p.command("apps", "-o", "json")
	var apps []client.App
	if err := json.Unmarshal([]byte(text), &apps); err != nil || len(apps) != 1 {
		p.t.Fatalf("%v: %s", err, text)
	}
	for _, n := range apps[0].Nodes {
		if n.State != states[n.Node] || n.State != client.AppReady && n.State != client.AppStarting && n.Reason == "" {
			p.t.Errorf("node %s: %+v, want %s", n.Node, n, states[n.Node])
		}
	}
	if len(apps[0].Nodes) != len(states) {
		p.t.Errorf("got %+v, want %v", apps[0].Nodes, states)
	}
	if out, _, status := p.command("apps"); status != 0 || !slices.Contains(strings.Fields(out), count) {
		p.t.Errorf("status %d, not %s:\n%s", status, count, out)
	}
}

// When `outboard deploy` has ended all nodes serve the version; those that can't, or do not yet,
// it names.
func TestDeployWaitsForNodes(t *testing.T) {
	beside(t)
	p := openReadyPool(t)
	harbour, dinghy, buoy := client.AppReady, client.AppReady, client.AppReady
	states := func() map[outboard.NodeID]string {
		return map[outboard.NodeID]string{"harbour": harbour, "dinghy": dinghy, "buoy": buoy}
	}
	if out := p.mustDeploy(); out[:strings.IndexByte(out, '\n')] != "app words, version 1, is deployed" {
		t.Errorf("it says %q", out)
	}
	for _, n := range p.nodes { // at once
		status, err := (&client.Client{Data: n.Data()}).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out, err := n.Exec(t.Context(), "curl", "-sS", "-w", "%{http_code}", "-d", "a b a", "http://"+status.HTTP+"/words/").CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), strconv.Itoa(http.StatusOK)) {
			t.Errorf("%s: %v: %s", n.Name, err, out)
		}
	}
	p.wantNodes("3/3", states())

	// A node whose process does not answer.
	stopped := tenantProcess(t, p.nodes[1])
	signal(t, stopped, syscall.SIGSTOP)
	dinghy = client.AppSilent
	p.deployWithout("dinghy")
	version := p.made
	p.wantNodes("2/3", states())
	signal(t, stopped, syscall.SIGCONT)
	rolledBack := fmt.Sprintf("app words, version %d, is deployed, as in version %d\n", version+1, version-1)
	if out, words, status := p.command("apps", "rollback", "words"); status != 0 || !strings.HasPrefix(out, rolledBack) {
		t.Errorf("status %d, %q, %q", status, out, words)
	}
	dinghy = client.AppReady
	p.wantNodes("3/3", states())

	// A node that can't get the files.
	artifacts := filepath.Join(p.nodes[2].Data(), "tenants", "default", "artifacts", "blobs")
	if err := os.Rename(artifacts, artifacts+".away"); err != nil {
		t.Fatal(err)
	}
	write(t, artifacts, []byte("in the way"))
	out, words, status := p.deploy("-o", "json")
	failed := fmt.Sprintf("app words, version %d, is applied, but ready on 2 of 3 nodes only: buoy failed: ", version+2)
	if status != 1 || !strings.Contains(words, failed) || !strings.Contains(words, "not a directory") {
		t.Errorf("status %d, %q", status, words)
	}
	var made client.Deployed
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Version != version+2 || len(made.Nodes) != 3 || made.Nodes[0].State != client.AppFailed {
		t.Errorf("%+v, %v", made, err)
	}
	buoy = client.AppFailed
	p.wantNodes("2/3", states())

	// A node that dies meanwhile is not waited for.
	if err := p.nodes[2].Kill(); err != nil {
		t.Fatal(err)
	}
	p.mustDeploy()
	p.wantNodes("2/2", map[outboard.NodeID]string{"harbour": harbour, "dinghy": dinghy})
}

func signal(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// tenantProcess is the process that runs a node's apps.
func tenantProcess(t testing.TB, n *rig.Node) int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may be gone
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		if bytes.HasSuffix(line, []byte("\x00internal\x00tenant\x00")) && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", n.PID())) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("node %s has no tenant's process", n.Name)
	return 0
}

const eachManifest = `app: %[1]s
functions: {f: {module: words.wasm}}
workflows: {flow: flow.yaml}
routes: [{path: /, methods: [POST], function: f}]
subjects: [{subject: %[1]s.in, function: f}]
`

const eachFlow = `document: {dsl: '1.0.0', namespace: %[1]s, name: flow, version: '1.0.0'}
do: [{f: {call: f, with: {body: a}}}]
`

// A node that starts serves each app as soon as that is ready; requests for the others it sends
// away for a while, and their messages are the other nodes'.
func TestEachAppStartsByItself(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	harbour, dinghy := r.Node("harbour"), r.Node("dinghy")
	module, err := os.ReadFile("../../guest/testdata/rust/words.wasm")
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range []string{"slow", "small"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "words.wasm"), module)
		write(t, filepath.Join(dir, "app.yaml"), fmt.Appendf(nil, eachManifest, app))
		write(t, filepath.Join(dir, "flow.yaml"), fmt.Appendf(nil, eachFlow, app))
		if out, err := harbour.Output(t.Context(), "deploy", dir); err != nil {
			t.Fatalf("deploy: %v: %s", err, out)
		}
	}
	if err := dinghy.Stop(); err != nil {
		t.Fatal(err)
	}
	// A reader of it waits: the node works on its app for as long as the test wants.
	content := fmt.Appendf(nil, eachFlow, "slow")
	blob := fetchedBlob(dinghy, content)
	if err := errors.Join(os.Rename(blob, blob+".away"), syscall.Mkfifo(blob, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := dinghy.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other app is served", func() bool {
		return requestCode(t, dinghy, "small") == http.StatusOK
	})
	eventually(t, "the first node tells how far the second is", func() bool {
		out, err := harbour.Output(t.Context(), "apps")
		return err == nil && countsOf(out)["slow"] == "1/2" && countsOf(out)["small"] == "2/2"
	})
	for range 20 {
		if out, err := harbour.Output(t.Context(), "publish", "slow.in", "-d", "a"); err != nil {
			t.Fatalf("publish: %v: %s", err, out)
		}
	}
	eventually(t, "the first node takes all messages", func() bool {
		functions, err := (&client.Client{Data: harbour.Data()}).Functions(t.Context(), "slow")
		return err == nil && len(functions) == 1 && functions[0].Calls == 20
	})
	if got := requestCode(t, dinghy, "slow"); got != http.StatusServiceUnavailable {
		t.Errorf("status %d", got)
	}
	pipe, err := os.OpenFile(blob, os.O_RDWR, 0)
	if err == nil {
		_, err = pipe.Write(content)
		err = errors.Join(err, os.Rename(blob+".away", blob), pipe.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both apps are served", func() bool {
		return requestCode(t, dinghy, "slow") == http.StatusOK
	})
}

// requestCode asks an app at a node.
func requestCode(t testing.TB, n *rig.Node, app string) int {
	t.Helper()
	status, err := (&client.Client{Data: n.Data()}).Status(t.Context())
	if err != nil {
		return 0 // it starts
	}
	out, _ := n.Exec(t.Context(), "curl", "-s", "-o", os.DevNull, "-w", "%{http_code}", "-d", "a", "http://"+status.HTTP+"/"+app+"/").Output()
	code, _ := strconv.Atoi(string(out))
	return code
}

// countsOf has the column NODES of `outboard apps`.
func countsOf(table string) map[string]string {
	counts := map[string]string{}
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) > 4 {
			counts[words[0]] = words[4]
		}
	}
	return counts
}
