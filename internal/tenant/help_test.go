package tenant

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// guest builds the module of testdata/guest, once.
var guest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "tenant")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "guest.wasm")
	build := exec.CommandContext(context.Background(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

func guestModule(t testing.TB) []byte {
	t.Helper()
	module, err := guest()
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// compiled is where compiled modules are kept from one test to the next.
var compiled = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "tenant-compiled") })

func compiledDir(t testing.TB) string {
	t.Helper()
	dir, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(confinedEnv); dir != "" {
		runConfined(dir)
	}
	status := m.Run()
	if dir, err := compiled(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(status)
}

// bench is a tenant in this process, over a pool's state of its own.
type bench struct {
	t      testing.TB
	tenant *Tenant
	store  *artifact.Store
	stop   func()
}

// openTenant starts one that ends with the test.
func openTenant(t testing.TB) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenant") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := openState(t, filepath.Join(dir, "state"))
	b := &bench{t: t}
	b.store, err = artifact.Open(artifact.Options{Dir: filepath.Join(dir, "artifacts")})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Protocol: Protocol, Tenant: "default", Node: "harbour", Boot: "1", Dir: filepath.Join(dir, "default"),
		Artifacts: filepath.Join(dir, "artifacts"), StateSocket: lend(t, s, filepath.Join(dir, "state.sock")), HTTP: "127.0.0.1:1",
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(compiledDir(t), filepath.Join(c.Dir, "compiled")); err != nil {
		t.Fatal(err)
	}
	b.tenant = New(c, ProcessOptions{})
	b.tenant.members.Set([]outboard.Node{{ID: "harbour", Boot: "1"}})
	b.stop = run(t, b.tenant)
	return b
}

// run runs a tenant until stop is called, or the test ends.
func run(t testing.TB, tenant *Tenant) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	up, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- tenant.Run(ctx, func() { close(up) }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-up:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	return stop
}

// restart starts the tenant again, as after the end of its process.
func (b *bench) restart(t testing.TB) {
	t.Helper()
	b.stop()
	members := b.tenant.members.Nodes()
	b.tenant = New(b.tenant.config, ProcessOptions{})
	b.tenant.members.Set(members)
	b.stop = run(t, b.tenant)
}

func openState(t testing.TB, dir string) *state.State {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := state.Open(t.Context(), state.Options{Dir: dir, Name: "harbour", Pool: "test", Addr: "127.0.0.1:1", TLS: state.FixedTLS(&tls.Config{MinVersion: tls.VersionTLS13})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// lend lends a state as a node does.
func lend(t testing.TB, s *state.State, path string) string {
	t.Helper()
	l, err := unixsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var lending sync.WaitGroup
	lending.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			lending.Go(func() { _ = s.Lend(ctx, conn, state.Borrower{Node: s.Name()}) })
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); lending.Wait() })
	return path
}

// deploy deploys a manifest with the guest's module as guest.wasm and other files.
func (b *bench) deploy(text string, files map[string]string) (client.Deployed, error) {
	b.t.Helper()
	d := client.Deployment{File: "app.yaml", Text: text, Files: map[string]string{}, Secrets: map[string][]byte{"token": []byte("hush")}}
	put := func(name string, content []byte) {
		digest, err := b.store.Put(b.t.Context(), content)
		if err != nil {
			b.t.Fatal(err)
		}
		d.Files[name] = digest
	}
	put("guest.wasm", guestModule(b.t))
	for name, content := range files {
		put(name, []byte(content))
	}
	var made client.Deployed
	err := b.ask("POST", "/v1/apps", d, &made)
	return made, err
}

func (b *bench) mustDeploy(text string, files map[string]string) client.Deployed {
	b.t.Helper()
	made, err := b.deploy(text, files)
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

// ask speaks with the local API.
func (b *bench) ask(method, path string, in, out any) error {
	b.t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			b.t.Fatal(err)
		}
	}
	w := httptest.NewRecorder()
	b.tenant.Control().ServeHTTP(w, httptest.NewRequestWithContext(b.t.Context(), method, path, &body))
	if w.Code != http.StatusOK {
		var failure client.Failure
		if err := json.Unmarshal(w.Body.Bytes(), &failure); err != nil {
			b.t.Fatalf("%s %s: status %d, %q", method, path, w.Code, w.Body)
		}
		return failure.Err()
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(w.Body.Bytes(), out)
}

// call calls a function by hand.
func (b *bench) call(function, request string) (string, error) {
	b.t.Helper()
	app, name, _ := strings.Cut(function, "/")
	w := httptest.NewRecorder()
	path := "/v1/apps/" + app + "/functions/" + name
	b.tenant.Control().ServeHTTP(w, httptest.NewRequestWithContext(b.t.Context(), "POST", path, strings.NewReader(request)))
	if w.Code != http.StatusOK {
		var failure client.Failure
		if err := json.Unmarshal(w.Body.Bytes(), &failure); err != nil {
			b.t.Fatal(err)
		}
		return "", failure.Err()
	}
	return w.Body.String(), nil
}

func (b *bench) mustCall(function, request, want string) {
	b.t.Helper()
	got, err := b.call(function, request)
	if err != nil {
		b.t.Fatalf("%s(%q): %v", function, request, err)
	}
	if got != want {
		b.t.Fatalf("%s(%q): got %q, want %q", function, request, got, want)
	}
}

// request asks the gateway.
func (b *bench) request(method, path, body string) *httptest.ResponseRecorder {
	b.t.Helper()
	w := httptest.NewRecorder()
	b.tenant.Requests().ServeHTTP(w, httptest.NewRequestWithContext(b.t.Context(), method, path, strings.NewReader(body)))
	return w
}

// impatient is request with a client that leaves before an app that is loading is ready.
func (b *bench) impatient(method, path, body string) *httptest.ResponseRecorder {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 50*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	b.tenant.Requests().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w
}

// eventually waits for what others bring about.
func (b *bench) eventually(ok func() bool) {
	b.t.Helper()
	limit := time.NewTimer(3 * time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			b.t.Fatal("it did not come about")
		}
	}
}
