package cli_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/cli"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A testNode is a fake node in this process, and the folder in which commands find it.
type testNode struct {
	*fakeNode
	data string
	// helper and environ are those of the commands, environ beside what all have.
	helper, environ []string
}

func startNode(t *testing.T) *testNode {
	t.Helper()
	// The socket lies in it, and its path has to be short.
	data, err := os.MkdirTemp("", "outboard-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	store, err := artifact.Open(artifact.Options{Dir: filepath.Join(data, "artifacts")})
	if err != nil {
		t.Fatal(err)
	}
	l, err := unixsock.Listen(filepath.Join(data, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{fakeNode: &fakeNode{store: store, apps: map[string]*fakeApp{}}, data: data}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: n.handler()}}
	server.Start()
	t.Cleanup(server.Close)
	return n
}

// A result is what a command printed, and its exit status.
type result struct {
	status         int
	stdout, stderr string
}

// run runs a command on the node, with stdin as its standard input.
func (n *testNode) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := &cli.Env{
		Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Helper: n.helper,
		Environ: append([]string{"PATH=" + os.Getenv("PATH"), "OUTBOARD_DATA=" + n.data, "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}, n.environ...),
	}
	status := env.Run(t.Context(), args)
	return result{status, stdout.String(), stderr.String()}
}

// succeed runs a command that must succeed, and returns both of its outputs, the standard output
// first.
func (n *testNode) succeed(t *testing.T, args ...string) string {
	t.Helper()
	r := n.run(t, "", args...)
	if r.status != 0 {
		t.Fatalf("outboard %s: status %d: %s", strings.Join(args, " "), r.status, r.stderr)
	}
	return r.stdout + r.stderr
}

// succeedQuietly is succeed without the standard error.
func (n *testNode) succeedQuietly(t *testing.T, args ...string) string {
	t.Helper()
	n.succeed(t, args...)
	return n.run(t, "", args...).stdout
}

// refuse runs a command that must end with a status and an error that has a text in it.
func (n *testNode) refuse(t *testing.T, status int, text string, args ...string) {
	t.Helper()
	r := n.run(t, "", args...)
	if r.status != status || !strings.Contains(r.stderr, text) {
		t.Errorf("outboard %s: status %d, want %d; it says %q, want %q in it", strings.Join(args, " "), r.status, status, r.stderr, text)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "outboard: ") {
		t.Errorf("outboard %s: the error is not one line that begins with outboard: %q", strings.Join(args, " "), r.stderr)
	}
}

// contains checks that an output has texts in it. A run of spaces stands for one.
func contains(t *testing.T, output string, texts ...string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(output) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	all := "\n" + strings.Join(lines, "\n") + "\n"
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q is not in\n%s", text, output)
		}
	}
}

// completions returns what a shell offers behind a command line.
func (n *testNode) completions(t *testing.T, args ...string) []string {
	t.Helper()
	r := n.run(t, "", append([]string{"__completeNoDesc"}, args...)...)
	words, _, _ := strings.Cut(r.stdout, "\n:")
	return strings.Fields(words)
}

// writeFile writes a file into a new folder and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersion(t *testing.T) {
	var b struct{ Version, Go, Platform string }
	n := startNode(t)
	if err := json.Unmarshal([]byte(n.succeed(t, "version", "-o", "json")), &b); err != nil || b.Version == "" || b.Go != runtime.Version() || b.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("it describes the binary as %+v: %v", b, err)
	}
	contains(t, n.succeed(t, "version"), "\nVERSION COMMIT GO PLATFORM\n", " "+b.Go+" "+b.Platform+"\n")
}
