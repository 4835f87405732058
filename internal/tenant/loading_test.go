package tenant

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/ipc"
)

const slowManifest = `app: slow
functions: {f: {module: guest.wasm, imports: [{bucket: notes}]}}
buckets: [notes]
workflows: {flow: flow.yaml}
routes: [{path: /, methods: [POST], function: f}]
subjects: [{subject: slow.in, function: f}]
`

const slowFlow = `document: {dsl: '1.0.0', namespace: slow, name: flow, version: '1.0.0'}
do:
  - rest: {wait: {seconds: 1}}
  - call: {call: f, with: {body: "json done"}}
`

const smallManifest = `app: small
functions: {f: {module: guest.wasm, imports: [{function: slow/f}]}}
workflows: {flow: small.yaml}
routes: [{path: /, methods: [POST], function: f}]
`

// hold blocks readers of the store until release is called; the test must call it.
func (b *bench) hold(t *testing.T, content string) (release func()) {
	t.Helper()
	digest := artifact.Digest([]byte(content))
	path := filepath.Join(b.tenant.config.Artifacts, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
	err := os.Rename(path, path+".away")
	if err == nil {
		err = unix.Mkfifo(path, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	released := false
	release = func() {
		if released {
			return
		}
		released = true
		pipe, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			err = os.Rename(path+".away", path) // for later readers
		}
		if err == nil {
			_, err = pipe.WriteString(content)
			err = errors.Join(err, pipe.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	return release
}

// later calls f and says what came of it.
func later(f func() (string, error)) <-chan string {
	out := make(chan string, 1)
	go func() {
		text, err := f()
		if err != nil {
			text = err.Error()
		}
		out <- text
	}()
	return out
}

// passConn passes the tenant a connection with a request, as its node does, and returns the
// status and body of the response.
func (b *bench) passConn(ctx context.Context, path, body string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return "", err
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer far.Close()
	file, err := far.(*net.TCPConn).File()
	if err != nil {
		return "", err
	}
	defer file.Close()
	node, process, err := ipc.ConnPair(ipc.Options{}, ipc.Options{})
	if err != nil {
		return "", err
	}
	defer node.Close()
	go b.tenant.ServeNode(process)
	if err := node.Send(TypeConn, nil, file); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(near, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, answer), err
}

// After a restart each app is served as soon as it is ready itself. What comes for one that is
// not waits, or is told to come again; nothing of it is lost.
func TestEachAppByItself(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy(slowManifest, map[string]string{"flow.yaml": slowFlow})
	b.mustDeploy(smallManifest, map[string]string{"small.yaml": strings.ReplaceAll(slowFlow, "slow", "small")})
	const many = 40 // more than are taken over at a time
	for i := range many {
		b.begin(t, fmt.Sprintf("/v1/apps/slow/workflows/flow/executions?id=left%d", i))
	}
	b.begin(t, "/v1/apps/small/workflows/flow/executions?id=left")
	b.stop()
	release := b.hold(t, slowFlow)
	b.restart(t)
	t.Cleanup(release) // before the tenant is stopped

	b.eventually(func() bool { return b.tenant.apps.Current("small") != nil })
	b.mustCall("small/f", "echo hello", "hello")
	b.wantState(t, "small", client.AppReady)
	b.wantState(t, "slow", client.AppStarting)
	if w := b.impatient("POST", "/slow/", "echo x"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, %q: %s", w.Code, w.Header(), w.Body)
	}
	if w := b.request("POST", "/slower/", "echo x"); w.Code != http.StatusNotFound {
		t.Errorf("an app that is not there: status %d", w.Code)
	}
	b.eventually(func() bool { // the subject is heard, and the message waits
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := b.tenant.state.Request(ctx, "slow.in", []byte("add notes heard 1"))
		return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoResponders)
	})
	waiting := map[string]<-chan string{
		"200 by a connection": later(func() (string, error) { return b.passConn(t.Context(), "/slow/", "echo by a connection") }),
		"by hand":             later(func() (string, error) { return b.call("slow/f", "echo by hand") }),
		"1 function": later(func() (string, error) {
			var all []client.Function
			err := b.ask("GET", "/v1/functions?app=slow", nil, &all)
			return fmt.Sprintf("%d function", len(all)), err
		}),
		"of another app": later(func() (string, error) { return b.call("small/f", "call slow/f echo of another app") }),
		"by message": later(func() (string, error) {
			answer, err := b.tenant.state.Request(t.Context(), "slow.in", []byte("echo by message"))
			return string(answer), err
		}),
		`"done"`: later(func() (string, error) {
			var e client.Execution
			err := b.ask("POST", "/v1/apps/slow/workflows/flow/executions?id=new&wait=true", struct{}{}, &e)
			return string(e.Output), err
		}),
	}
	b.mustCall("small/f", "echo still here", "still here")
	b.eventually(func() bool { return b.completed("/v1/apps/small/executions/left") })
	for want, got := range waiting {
		select {
		case text := <-got:
			t.Errorf("%s did not wait: %s", want, text)
		default:
		}
	}
	release()
	for want, got := range waiting {
		if text := <-got; text != want {
			t.Errorf("got %q, want %q", text, want)
		}
	}
	b.wantState(t, "slow", client.AppReady)
	for i := range many { // what ran before the restart goes on
		b.eventually(func() bool { return b.completed(fmt.Sprintf("/v1/apps/slow/executions/left%d", i)) })
	}
	b.eventually(func() bool { // no client waits for the answer, but the call was made
		text, err := b.call("slow/f", "add notes heard 0")
		return err == nil && text != "0"
	})
}

// begin starts an execution.
func (b *bench) begin(t *testing.T, path string) {
	t.Helper()
	if err := b.ask("POST", path, struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) completed(path string) bool {
	var e client.Execution
	return b.ask("GET", path, nil, &e) == nil && e.State == client.StateCompleted
}

func (b *bench) wantState(t *testing.T, app, want string) {
	t.Helper()
	var all []client.App
	if err := b.ask("GET", "/v1/apps", nil, &all); err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Name == app && a.State != want {
			t.Errorf("app %s is %s (%s), want %s", app, a.State, a.Reason, want)
		}
	}
}

// No request waits for an app that can't be made ready; it is tried again, and then what waits for
// it goes on.
func TestFailedAppIsTriedAgain(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy(slowManifest, map[string]string{"flow.yaml": slowFlow})
	b.mustDeploy(smallManifest, map[string]string{"small.yaml": strings.ReplaceAll(slowFlow, "slow", "small")})
	b.stop()
	blob := filepath.Join(b.tenant.config.Artifacts, "blobs", "sha256", strings.TrimPrefix(artifact.Digest([]byte(slowFlow)), "sha256:"))
	if err := os.Rename(blob, blob+".away"); err != nil {
		t.Fatal(err)
	}
	b.restart(t)
	b.eventually(func() bool { return b.tenant.apps.Progress()["slow"].Failure != "" })
	b.wantState(t, "slow", client.AppFailed)
	b.mustCall("small/f", "echo hello", "hello")
	if _, err := b.call("slow/f", "echo hello"); outboard.KindOf(err) != outboard.Unreachable || !strings.Contains(err.Error(), "file flow.yaml: ") {
		t.Errorf("got %v", err)
	}
	if err := os.Rename(blob+".away", blob); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() bool { return b.tenant.apps.Progress()["slow"].Failure == "" })
	b.eventually(func() bool { return b.tenant.apps.Current("slow") != nil })
	b.mustCall("slow/f", "echo hello", "hello")
}

// An app that is deployed and can't be served here yet is not reported as absent.
func TestNotReadyHere(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy(other, nil)
	app, _ := b.tenant.registry.Get("other")
	v := app.Versions[0]
	v.App.Name, v.Files = "late", map[string]string{"guest.wasm": artifact.Digest([]byte("gone"))}
	if _, err := b.tenant.registry.Apply(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() bool { _, err := b.call("late/far", ""); return outboard.KindOf(err) == outboard.Unreachable })
	if w := b.request("GET", "/late/x", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "not ready on this node") {
		t.Errorf("status %d, %q, %q", w.Code, w.Header(), w.Body)
	}
	b.eventually(func() bool {
		_, err := b.call("late/far", "")
		return outboard.KindOf(err) == outboard.Unreachable && strings.HasPrefix(err.Error(), "app late failed to become ready on this node: ")
	})
	if w := b.request("GET", "/never/x", ""); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}
