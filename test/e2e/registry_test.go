//go:build conformance

package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// A registries test has a registry that others wrote, with one user, and two nodes.
type registries struct {
	t             *testing.T
	dir           string // of what users have
	store         string // of what the registry has
	host          string
	nodes         []*rig.Node
	first, second []byte // modules, as first.wasm and second.wasm in dir
}

const (
	registryUser = "sailor:hush"
	registryPass = "sailor:$2a$05$n8BGDEFKKOFsB3B6.jDntOdZJWJc1StPutMGxo9C8DyoCRQHx6uEC\n" // the same for htpasswd
)

// Modules go to CNCF's Distribution and come from there, with its users and its texts.
func TestConformanceRegistry(t *testing.T) {
	f := openRegistry(t)
	t.Run("credentials", f.credentials)
	f.login(registryUser)
	t.Run("push and pull", f.pushAndPull)
	t.Run("deploy", f.deploy)
	t.Run("broken content", f.broken)
}

func openRegistry(t *testing.T) *registries {
	f := &registries{t: t, dir: t.TempDir(), store: t.TempDir(), host: fmt.Sprintf("127.0.0.1:%d", statetest.FreePort(t))}
	program := filepath.Join(t.TempDir(), "registry")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "testdata/registry", "-o", program, ".")
	build.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\nauth: {htpasswd: {realm: fleet, path: %q}}\n",
		f.store, f.host, filepath.Join(f.dir, "htpasswd"))
	write(t, filepath.Join(f.dir, "registry.yaml"), []byte(config))
	write(t, filepath.Join(f.dir, "htpasswd"), []byte(registryPass))
	server := exec.CommandContext(t.Context(), program, "serve", filepath.Join(f.dir, "registry.yaml"))
	server.Stderr = logFile(t)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // killed
	})
	f.up()

	module, err := os.ReadFile("../../guest/testdata/rust/words.wasm")
	if err != nil {
		t.Fatal(err)
	}
	f.first, f.second = module, append(bytes.Clone(module), 0, 2, 1, 'x') // a section of its own
	write(t, f.at("first.wasm"), f.first)
	write(t, f.at("second.wasm"), f.second)
	r := own(t, rig.Options{Loopback: true, Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	f.nodes = []*rig.Node{r.Node("harbour"), r.Node("dinghy")}
	return f
}

func (f *registries) at(name string) string { return filepath.Join(f.dir, name) }

// up waits until the registry answers.
func (f *registries) up() {
	eventually(f.t, "the registry answers", func() bool {
		request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+f.host+"/v2/", nil)
		if err != nil {
			f.t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusUnauthorized
	})
}

// login is what `docker login` leaves; "" takes it away.
func (f *registries) login(user string) {
	text := "{}"
	if user != "" {
		text = fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, f.host, base64.StdEncoding.EncodeToString([]byte(user)))
	}
	write(f.t, f.at("config.json"), []byte(text))
}

// run runs a command at a node, and wants its exit status and a part of what it says.
func (f *registries) run(t *testing.T, node, status int, want string, args ...string) string {
	t.Helper()
	cmd := f.nodes[node].Command(t.Context(), args...)
	cmd.Dir, cmd.Env = f.dir, append(cmd.Env, "DOCKER_CONFIG="+f.dir)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status || !strings.Contains(string(out), want) {
		t.Errorf("outboard %s: exit status %d, want %d, and %q in\n%s", strings.Join(args, " "), got, status, want, out)
	}
	return strings.TrimSpace(string(out))
}

const (
	exitNotFound = 11
	exitProtocol = 18
)

func (f *registries) credentials(t *testing.T) {
	f.login("")
	f.run(t, 0, exitDenied, "`docker login "+f.host+"`", "modules", "push", "first.wasm", f.host+"/fleet/words:v1")
	f.login("sailor:guess")
	f.run(t, 0, exitDenied, "`docker login "+f.host+"`", "modules", "push", "first.wasm", f.host+"/fleet/words:v1")
	f.run(t, 0, exitDenied, "`docker login "+f.host+"`", "modules", "pull", f.host+"/fleet/words:v1")
}

func (f *registries) pushAndPull(t *testing.T) {
	ref := f.host + "/fleet/words:v1"
	f.run(t, 0, exitNotFound, "the registry "+f.host+" does not have it", "modules", "pull", ref)
	pushed := f.run(t, 0, 0, ref+"@sha256:", "modules", "push", "first.wasm", ref)
	if again := f.run(t, 1, 0, "", "modules", "push", "first.wasm", ref); again != pushed {
		t.Errorf("the same module is %s, and then %s", pushed, again)
	}
	for _, name := range []string{ref, pushed} {
		f.run(t, 1, 0, pushed, "modules", "pull", name, "pulled.wasm")
		if got, err := os.ReadFile(f.at("pulled.wasm")); err != nil || !bytes.Equal(got, f.first) {
			t.Errorf("%s: pulled %d bytes, %v", name, len(got), err)
		}
	}
	wrong := "@sha256:" + strings.Repeat("1", 64)
	f.run(t, 0, exitNotFound, "does not have it", "modules", "pull", ref+wrong, "pulled.wasm")
	f.run(t, 0, exitInvalid, "the content has the digest", "modules", "push", "second.wasm", ref+wrong)
	f.run(t, 0, exitInvalid, "it is no WebAssembly module", "modules", "push", "htpasswd", ref)
}

// deploy wants what is deployed by a reference to stay what it was when the tag leads
// elsewhere, on every node.
func (f *registries) deploy(t *testing.T) {
	ref := f.host + "/fleet/words:v1"
	manifest := func(name, ref string) {
		write(t, f.at(name+".yaml"), []byte("app: words\nfunctions: {count: {module: \"oci:"+ref+"\"}}\n"))
	}
	manifest("app", ref)
	f.run(t, 0, 0, "app words, version 1, is deployed", "deploy")
	lock, err := os.ReadFile(f.at("app.lock"))
	if err != nil {
		t.Fatal(err)
	}
	fetched(t, f.nodes[1], f.first)

	was := string(lock[bytes.LastIndex(lock, []byte("sha256:")) : len(lock)-1])
	_, now, _ := strings.Cut(f.run(t, 1, 0, "", "modules", "push", "second.wasm", ref), "@")
	f.run(t, 1, exitInvalid, ref+" is "+now+" now, and was "+was+" when the app was last deployed", "deploy")
	if again, err := os.ReadFile(f.at("app.lock")); err != nil || !bytes.Equal(again, lock) {
		t.Errorf("the lock is %s now, %v", again, err)
	}
	manifest("pinned", ref+"@"+was)
	f.run(t, 1, 0, "version 2, is deployed", "deploy", "pinned.yaml")
	fetched(t, f.nodes[0], f.first)
	f.run(t, 1, 0, "version 3, is deployed", "deploy", "--update")
	for _, n := range f.nodes {
		eventually(t, n.Name+" has the other module", func() bool { return exists(blobOf(n, f.second)) })
		fetched(t, n, f.second)
	}
}

// broken changes what lies on the registry's disk.
func (f *registries) broken(t *testing.T) {
	ref := f.host + "/fleet/words:v1"
	hex := strings.TrimPrefix(artifact.Digest(f.second), "sha256:")
	blob := filepath.Join(f.store, "docker", "registry", "v2", "blobs", "sha256", hex[:2], hex, "data")
	other := bytes.Clone(f.second)
	other[100] ^= 1
	write(t, blob, other)
	f.run(t, 0, exitProtocol, "the registry sent content that does not match its descriptor", "modules", "pull", ref, "broken.wasm")
	write(t, f.at("fresh.yaml"), []byte("app: fresh\nfunctions: {count: {module: \"oci:"+ref+"\"}}\n"))
	f.run(t, 0, exitInvalid, "fresh.yaml:2:29: pull ", "deploy", "fresh.yaml")
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	f.run(t, 0, exitNotFound, "its module: ", "modules", "pull", ref, "broken.wasm")
	if exists(f.at("broken.wasm")) || exists(f.at("fresh.lock")) {
		t.Error("what is broken has left something behind")
	}
}
