package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/artifact"
)

// isWorker reports whether a process runs a model.
func isWorker(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(line, []byte("model-worker"))
}

// workerTimes returns the processor time that the workers of each node have used.
func (p *pool) workerTimes(names []string) map[string]time.Duration {
	times := map[string]time.Duration{}
	for _, name := range names {
		for _, pid := range tree(p.Node(name).PID())[1:] {
			if isWorker(pid) {
				times[name] += scheduledTime(pid)
			}
		}
	}
	return times
}

// busiest returns the node whose workers have used most processor time since before.
func (p *pool) busiest(names []string, before map[string]time.Duration) string {
	now := p.workerTimes(names)
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(now[a]-before[a], now[b]-before[b]) })
}

// scheduledTime returns the processor time of the threads of a process, which the scheduler counts
// in nanoseconds.
func scheduledTime(pid int) (total time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		used, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(used, 10, 64)
		total += time.Duration(n)
	}
	return total
}

// refind updates the addresses of nodes, which change when a node restarts. It returns false.
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

// distinct copies a GGUF file with a different last weight.
func distinct(dir, name, file string, n int) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	content[len(content)-1] ^= byte(n + 1)
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, content, 0o600)
}

// storedFile returns the size of a file in a node's store, and the time at which its inode changed last:
// while the model is loaded, that is when the store, which had just received the file, linked it.
func storedFile(data, file string) (size int64, stored time.Time, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, time.Time{}, err
	}
	_, name, _ := strings.Cut(artifact.Digest(content), ":")
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(data, "artifacts", "blobs", "sha256", name), &st); err != nil {
		return 0, time.Time{}, fmt.Errorf("the model's file in the store: %w", err)
	}
	return st.Size, time.Unix(st.Ctim.Unix()), nil
}
