package process

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
)

// child is a server of a test.
type child struct{ *exec.Cmd }

func (c child) Kill()       { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
func (c child) Wait() error { return c.Cmd.Wait() }

func start(command, environment []string) (Process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return child{cmd}, cmd.Start()
}

// TestLlamaServer holds this engine to the contract with a real llama-server, where the variable
// OUTBOARD_TEST_LLAMA_SERVER has a command for it with the placeholders of a definition, or
// llama-server is installed.
func TestLlamaServer(t *testing.T) {
	command := strings.Fields(os.Getenv("OUTBOARD_TEST_LLAMA_SERVER"))
	if len(command) == 0 {
		path, err := exec.LookPath("llama-server")
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("llama-server is not installed")
		}
		command = []string{path, "--model", "{model}", "--port", "{port}", "--host", "127.0.0.1", "--parallel", "{sequences}", "--threads", "{threads}", "--metrics"}
	}
	e := &Engine{Servers: map[string]Server{"x": {Kind: "llama-server", Command: command}}, Start: start}
	enginetest.TextOf(t, enginetest.Server, func(t *testing.T, source engine.Source, o engine.Options) engine.TextModel {
		o.Server = "x"
		m, err := e.Load(t.Context(), source, o)
		if err != nil {
			t.Fatal(err)
		}
		return m.(engine.TextModel)
	})
}
