package main

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed scripts/*.py
var scripts embed.FS

// script writes a script into the folder of the run and returns its path.
func (b *bench) script(name string) (string, error) {
	text, err := scripts.ReadFile("scripts/" + name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.Dir, strings.TrimSuffix(name, ".py"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, text, 0o644)
}

// A result is a line of JSON that a rank has printed.
type result struct {
	rank int
	text []byte
}

// train runs a script on ranks of this machine and returns the lines of JSON that they print.
func (b *bench) train(ctx context.Context, ranks int, name string, args ...string) ([]result, error) {
	path, err := b.script(name)
	if err != nil {
		return nil, err
	}
	args = append([]string{"train", "--ranks", strconv.Itoa(ranks), "--", b.python, path}, args...)
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "OUTBOARD_DATA="+filepath.Join(b.Dir, "data"))
	return results(cmd)
}

// results runs a command that prints the lines of ranks, and returns the lines that are JSON.
func results(cmd *exec.Cmd) ([]result, error) {
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(problems.String()))
	}
	var list []result
	for line := range bytes.Lines(out.Bytes()) {
		head, text, ok := bytes.Cut(line, []byte("] "))
		rank, err := strconv.Atoi(strings.TrimPrefix(string(head), "["))
		if ok && err == nil && bytes.HasPrefix(text, []byte("{")) {
			list = append(list, result{rank, text})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no rank has printed a result: %s", strings.TrimSpace(problems.String()))
	}
	return list, nil
}
