package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
)

// The process of a tenant is confined in the program that users install, which differs from the tests
// of its packages: it contains the engines of models.
func TestTenantIsConfined(t *testing.T) {
	beside(t)
	log := logFile(t)
	wrapper := filepath.Join(t.TempDir(), "outboard")
	inherited := wrapper + ".log" // as a service manager leaves open
	write(t, wrapper, fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\" 9>>%s\n", binary(t), inherited))
	if err := os.Chmod(wrapper, 0o755); err != nil {
		t.Fatal(err)
	}
	r := own(t, rig.Options{Loopback: true, Log: log, Binary: wrapper, Env: []string{"AWS_SECRET_ACCESS_KEY=of the object store"}, Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}}})
	module, err := os.ReadFile("../../guest/testdata/rust/words.wasm")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "words.wasm"), module)
	write(t, filepath.Join(dir, "app.yaml"), []byte(rustManifest))
	if out, err := r.Node("harbour").Output(t.Context(), "deploy", dir); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "can reach the files") {
		t.Errorf("the process is not confined:\n%s", text)
	}
	up := regexp.MustCompile(`a tenant's process is up.* pid=(\d+)`).FindSubmatch(text)
	if up == nil {
		t.Fatalf("no process of a tenant in the log:\n%s", text)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%s/status", up[1]))
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("the process may gain privileges: %v\n%s", err, status)
	}
	if !strings.Contains(string(status), "Seccomp:\t2") {
		t.Errorf("the process may make all system calls:\n%s", status)
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if !strings.Contains(string(status), set+":\t0000000000000000") {
			t.Errorf("the process has capabilities:\n%s", status)
		}
	}
	if path, err := os.Readlink(fmt.Sprintf("/proc/%s/fd/9", up[1])); err == nil && path == inherited {
		t.Error("the process has a file that its node has inherited")
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%s/environ", up[1]))
	if err != nil || strings.Contains(string(environ), "AWS_") {
		t.Errorf("the process has the node's secrets: %v\n%q", err, environ)
	}
}
