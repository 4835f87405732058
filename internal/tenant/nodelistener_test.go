package tenant

import (
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/unixsock"
)

// dialVariable makes this test's program connect to a socket and print what it receives.
const dialVariable = "OUTBOARD_TEST_DIAL"

func TestDial(t *testing.T) {
	path := os.Getenv(dialVariable)
	if path == "" {
		t.Skip("it is the other process of TestOtherTenantsAtTheSockets")
	}
	conn, err := unixsock.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(conn) // a refused peer may see a reset
	_, _ = os.Stdout.WriteString("received: " + string(text))
}

// A guest that has taken over the process of another tenant has the user of this one, and is served
// nothing at its sockets. The node is.
func TestOtherTenantsAtTheSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "outboard-tenant-") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "control.sock")
	var log strings.Builder
	l, err := listenForNode(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "secret")
			_ = conn.Close()
		}
	}()
	receive := func() string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDial$")
		cmd.Env = append(os.Environ(), dialVariable+"="+path)
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		text, _, _ := strings.Cut(string(out), "PASS")
		return strings.TrimSpace(text)
	}
	if got := receive(); got != "received:" {
		t.Errorf("another process %s", got)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); err != nil || string(text) != "secret" {
		t.Errorf("the node itself received %q, %v", text, err)
	}
	_ = l.Close()
	<-done
	if !strings.Contains(log.String(), "peer refused") {
		t.Error("the refusal was not logged")
	}
}
