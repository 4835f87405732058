package cli_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/lend/fake"
	"github.com/outboard-run/outboard/internal/cli"
)

// The scripts run this binary under other names: `outboard` with fake devices,
// its helper, and `program`, which uses a fake device.
func TestMain(m *testing.M) {
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	if os.Getenv(calibratedAs) != "" {
		os.Exit(calibratedMain())
	}
	testscript.Main(m, map[string]func(){
		"outboard": func() { os.Exit(outboardMain()) },
		"helper":   func() { os.Exit(helperMain()) },
		"program":  func() { os.Exit(fake.Program(os.Args[1:])) },
		"holds":    func() { os.Exit(holds()) },
		"fakenode": func() { os.Exit(fakeNodeMain()) },
		"registry": func() { os.Exit(registryMain()) },
	})
}

func outboardMain() int {
	env := cli.Process()
	helper, err := exec.LookPath("helper")
	if err != nil {
		return 99
	}
	env.Helper = []string{helper}
	env.Vendors = func(dir string) (string, error) { return dir, os.MkdirAll(dir, 0o700) }
	return env.Main(os.Args[1:])
}

// helperMain is a helper process with fake devices.
func helperMain() int {
	if len(os.Args) == 2 && (os.Args[1] == "calls" || os.Args[1] == "tenant") {
		return cli.Process().Main([]string{"internal", os.Args[1]})
	}
	return fake.Helper(os.Args[1:])
}

// holds succeeds once a session lives on the node.
func holds() int {
	sessions, err := (&client.Client{Data: os.Getenv("OUTBOARD_DATA")}).Sessions(context.Background())
	if err != nil || len(sessions) == 0 {
		return 1
	}
	return 0
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			// Sockets lie in it, and programs know no long paths of sockets.
			data, err := os.MkdirTemp("", "outboard-cli-")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(data) })
			e.Setenv("OUTBOARD_DATA", data)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TMPDIR", "/tmp")
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": status,
			"await":  await,
			"keep":   keep,
		},
	})
}

// status runs a command and checks its exit status: status N COMMAND ARGS...
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exitText(exit)
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != args[0] {
		ts.Fatalf("status %s, want %s", got, args[0])
	}
}
