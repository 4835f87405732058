package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// isWorker reports whether a process runs a model.
func isWorker(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(line, []byte("model-worker"))
}

// busy returns the one of the nodes whose workers use most processor time.
func (p *pool) busy(names []string) string {
	used := func(name string) (total time.Duration) {
		for _, pid := range tree(p.Node(name).PID())[1:] {
			if isWorker(pid) {
				total += processorTime(pid)
			}
		}
		return total
	}
	before := map[string]time.Duration{}
	for _, name := range names {
		before[name] = used(name)
	}
	time.Sleep(10 * clockTick)
	best := names[0]
	for _, name := range names {
		if used(name)-before[name] > used(best)-before[best] {
			best = name
		}
	}
	return best
}

// refind reads the addresses of nodes again, which change when a node starts again.
func (p *pool) refind(ctx context.Context) bool {
	for i := range p.names {
		_ = p.findURL(ctx, i) // a node that is starting has none
	}
	return false
}

// knows reports whether a node knows a model.
func (p *pool) knows(ctx context.Context, node int, name string) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, p.urls[node]+"/v2/repository/index", http.NoBody)
	if err != nil {
		return false
	}
	r, err := httpClient.Do(q)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return err == nil && bytes.Contains(text, []byte(`"`+name+`"`))
}

// distinct copies a GGUF file with a last weight of its own.
func distinct(dir, name, file string, n int) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	content[len(content)-1] ^= byte(n + 1)
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, content, 0o600)
}

func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, errors.Join(errors.New("the model's file is gone"), err)
	}
	return info.Size(), nil
}
