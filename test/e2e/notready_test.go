package e2e

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

// A tenant's process that can't be started is reported with its reason by `outboard invoke` and
// in the node's log; HTTP requests get 503 with Retry-After. It starts once it can.
func TestTenantCannotStart(t *testing.T) {
	beside(t)
	log := logFile(t)
	r := own(t, rig.Options{Loopback: true, Log: log, Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}}})
	n := r.Node("harbour")
	deployWords(t, n, rustManifest)
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(n.Data(), "tenants", "default")
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	write(t, folder, []byte("in the way"))
	if err := n.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	const why = "not a directory"
	eventually(t, "a caller gets the reason", func() bool {
		out, err := n.Command(t.Context(), "invoke", "words/count", "-d", "a").CombinedOutput()
		exit, failed := errors.AsType[*exec.ExitError](err)
		return failed && exit.ExitCode() == exitUnreachable && strings.Contains(string(out), "the process of tenant default: ") && strings.Contains(string(out), why)
	})
	eventually(t, "the log says why", func() bool {
		raw, err := os.ReadFile(log.Name())
		return err == nil && strings.Contains(string(raw), why)
	})
	status, err := (&client.Client{Data: n.Data()}).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+status.HTTP+"/words/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || response.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, %q", response.StatusCode, response.Header)
	}
	if err := errors.Join(os.Remove(folder), os.Rename(folder+".away", folder)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the app is served again", func() bool {
		out, err := n.Output(t.Context(), "invoke", "words/count", "-d", "a a")
		return err == nil && out == "a 2\ncall 1\n"
	})
}

const exitUnreachable = 16
