package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/cli"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/packaging/modules"
)

var commitTime = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestDebVersion(t *testing.T) {
	tests := map[string]string{
		"v0.2.0":                "0.2.0",
		"v0.2.0-dirty":          "0.2.0+dirty",
		"v0.2.0-5-gabc1234":     "0.2.0+5.gabc1234",
		"abc1234":               "0~20261122120000.gabc1234",
		"1234567-dirty":         "0~20261122120000.g1234567.dirty",
		"v0.2.0-5-gabc12-dirty": "0.2.0+5.gabc12.dirty",
	}
	for version, want := range tests {
		if got := (&release{version: version, time: commitTime}).debVersion(); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
}

// Every command has a manual page that a formatter reads without a warning.
func TestManual(t *testing.T) {
	pages := manual(cli.Commands(), "0.2.0", commitTime)
	for _, name := range []string{"outboard.1", "outboard-up.1", "outboard-executions-show.1", "outboard-exit-status.1"} {
		if pages[name] == "" {
			t.Errorf("there is no page %s", name)
		}
	}
	if got := pages["outboard-run.1"]; !strings.Contains(got, `.SH NAME
outboard\-run \- Run a program`) || !strings.Contains(got, `\fB\-\-memory\fR`) {
		t.Errorf("outboard-run.1 is\n%s", got)
	}
	for name := range pages {
		if strings.Contains(name, "internal") {
			t.Errorf("the page %s is of a hidden command", name)
		}
	}
	need.Program(t, "mandoc")
	dir := t.TempDir()
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "mandoc", "-T", "lint", "-W", "warning", filepath.Join(dir, name)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

func TestEscape(t *testing.T) {
	if got, want := escape(".a\n'b\nc\\d-e"), "\\&.a\n\\&'b\nc\\ed\\-e"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSBOM(t *testing.T) {
	r := release{version: "v0.2.0", time: commitTime}
	d := r.sbom([]modules.Module{{Path: modules.Standard, Version: "1.26.1", Licence: "BSD-3-Clause"}, {Path: "a.example/b_c", Version: "v1.0.0", Licence: "MIT"}})
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"spdxVersion":"SPDX-2.3"`, `"created":"2026-11-22T12:00:00Z"`, `"SPDXID":"SPDXRef-a.example-b-c"`, `"pkg:golang/a.example/b_c@v1.0.0"`, `"pkg:golang/stdlib@1.26.1"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if len(d.Packages) != 3 || len(d.Relationships) != 3 {
		t.Errorf("got %d packages and %d relationships, want 3 of each", len(d.Packages), len(d.Relationships))
	}
}

// The maintainer scripts do what they should in each case. Programs that change the machine are
// replaced by ones that write down their arguments.
func TestMaintainerScripts(t *testing.T) {
	const upgrade = "outboard upgrade"
	tests := map[string]struct {
		script string
		args   []string
		node   bool // a node runs
		want   []string
		never  []string
	}{
		"install":             {"postinst", []string{"configure", ""}, false, []string{"adduser --system", "deb-systemd-helper enable"}, []string{upgrade}},
		"upgrade, no node":    {"postinst", []string{"configure", "0.1.0"}, false, []string{"adduser"}, []string{upgrade}},
		"upgrade":             {"postinst", []string{"configure", "0.1.0"}, true, []string{upgrade}, []string{"outboard down"}},
		"before an upgrade":   {"prerm", []string{"upgrade", "0.2.0"}, true, nil, []string{"outboard down", "stop"}},
		"before a removal":    {"prerm", []string{"remove"}, true, []string{"outboard down"}, nil},
		"removal":             {"postrm", []string{"remove"}, false, []string{"deb-systemd-helper mask"}, []string{"deluser", "rm"}},
		"after an upgrade":    {"postrm", []string{"upgrade", "0.2.0"}, false, nil, []string{"mask", "purge", "rm"}},
		"purge":               {"postrm", []string{"purge"}, false, []string{"deb-systemd-helper purge", "rm -rf DATA", "deluser"}, nil},
		"abort of an upgrade": {"postinst", []string{"abort-upgrade", "0.2.0"}, false, nil, []string{upgrade, "adduser"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := runScript(t, test.script, test.args, test.node)
			for _, want := range test.want {
				if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
					t.Errorf("%q was not called:\n%s", want, strings.Join(got, "\n"))
				}
			}
			for _, never := range test.never {
				if slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, never) }) {
					t.Errorf("%q was called:\n%s", never, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// runScript runs a maintainer script with recorders in place of programs, and returns their calls.
func runScript(t *testing.T, name string, args []string, node bool) []string {
	t.Helper()
	dir := t.TempDir()
	data, programs, record := filepath.Join(dir, "data"), filepath.Join(dir, "bin"), filepath.Join(dir, "record")
	text, err := os.ReadFile("../debian/" + name)
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("/var/lib/outboard", data, "/run/systemd/system", dir+"/none", "-S \"$data", "-e \"$data", "-S "+data, "-e "+data,
		"-S /var/lib/outboard", "-e "+data).Replace(string(text))
	if err := put(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"adduser", "addgroup", "deluser", "deb-systemd-helper", "deb-systemd-invoke", "systemctl", "outboard", "rm"} {
		if err := put(filepath.Join(programs, program), []byte("#!/bin/sh\necho "+program+" \"$@\" >>"+record+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(filepath.Join(programs, "getent"), []byte("#!/bin/sh\necho there\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if node {
		if err := put(filepath.Join(data, "outboard.sock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{filepath.Join(dir, name)}, args...)...)
	cmd.Env = []string{"PATH=" + programs + ":/usr/bin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	calls, err := os.ReadFile(record)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(calls), data, "DATA")), "\n")
	return lines
}

// The unit is one that systemd accepts.
func TestUnit(t *testing.T) {
	need.Program(t, "systemd-analyze")
	text, err := os.ReadFile("../outboard.service")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "outboard.service")
	// The program need not be installed.
	if err := put(file, []byte(strings.ReplaceAll(string(text), "/usr/bin/outboard", "/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	var own []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "outboard.service") {
			own = append(own, line)
		}
	}
	if diff := cmp.Diff([]string(nil), own); diff != "" {
		t.Errorf("systemd-analyze verify: %v (-want +got):\n%s", err, diff)
	}
}
