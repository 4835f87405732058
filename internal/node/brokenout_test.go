package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/node"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/unixsock"
	"github.com/outboard-run/outboard/outboardtest"
)

// brokenOutVariable makes the processes of tenants attack their node's sockets and write what they
// receive to the file that it names. A node passes them only variables of certain names.
const brokenOutVariable = "OTEL_TEST_BROKEN_OUT"

// breakOut is the process of a tenant that a guest has taken over.
func breakOut(path string) error {
	conn, err := ipc.FromFile(os.NewFile(3, "node"), ipc.Options{})
	if err != nil {
		return err
	}
	defer conn.Close()
	m, err := conn.Receive(context.Background())
	if err != nil {
		return err
	}
	var c tenant.Config
	if err := m.Decode(&c); err != nil {
		return err
	}
	received := map[string]string{}
	for name, dial := range map[string]func(context.Context, string) (*net.UnixConn, error){
		client.SocketName: unixsock.Dial, node.SessionSocket: unixsock.DialPacket,
	} {
		received[name] = request(dial, filepath.Join(filepath.Dir(c.StateSocket), name))
	}
	text, err := json.Marshal(received)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".part", path); err != nil {
		return err
	}
	_, _ = conn.Receive(context.Background()) // until the node ends
	return nil
}

// request sends a request to a socket, and returns the beginning of the answer.
func request(dial func(context.Context, string) (*net.UnixConn, error), path string) string {
	conn, err := dial(context.Background(), path)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write([]byte("GET /v1/status HTTP/1.1\r\nHost: node\r\n\r\n")); err != nil {
		return err.Error()
	}
	answer := make([]byte, 1<<10)
	n, err := conn.Read(answer)
	return fmt.Sprintf("%s (%v)", answer[:n], err)
}

// A guest that has taken over the process of its tenant has the node's user: the node does not serve
// it at the sockets of that user.
func TestTenantsAtTheLocalSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "received")
	t.Setenv(brokenOutVariable, path)
	var log logged
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	app := t.TempDir()
	const steps = "document: {dsl: '1.0.0', namespace: test, name: steps, version: '1.0.0'}\ndo: [{a: {set: {n: 1}}}]\n"
	for name, text := range map[string]string{"app.yaml": "app: a\nworkflows: {steps: steps.yaml}\n", "steps.yaml": steps} {
		if err := os.WriteFile(filepath.Join(app, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deploy := p.Node("harbour").Command(ctx, "deploy", filepath.Join(app, "app.yaml"))
	if err := deploy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = deploy.Wait() }) // the process never becomes ready
	var text []byte
	eventually(t, "the process has connected", func() (ok bool) {
		var err error
		text, err = os.ReadFile(path)
		return err == nil
	})
	var received map[string]string
	if err := json.Unmarshal(text, &received); err != nil || len(received) != 2 {
		t.Fatalf("%s, %v", text, err)
	}
	for name, answer := range received {
		if strings.Contains(answer, "HTTP") || strings.Contains(answer, "{") {
			t.Errorf("the node answered at %s: %s", name, answer)
		}
	}
	eventually(t, "the refusals are logged", func() bool { return log.count("peer refused") >= 2 })
}
