package lend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/rmtree"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// Sandbox configures the isolation of workers. The zero value is the strongest that the machine
// allows.
type Sandbox struct {
	// Require are mechanisms without which no session starts.
	Require []sandbox.Mechanism
	// Readable are paths beyond the system's libraries that drivers read.
	Readable []string
	// Devices are patterns of device files beyond the known accelerators'.
	Devices []string
	// Environ are names of environment variables beyond the known drivers'.
	Environ []string
	// Calls are numbers of system calls added to the allow-list.
	Calls []uint32
	// FirstUID and UIDs are the range of users for workers of a node that runs as root; 0 means
	// 65,536 users from 0x70000000.
	FirstUID, UIDs int
	// Cache bounds a program's cache of compiled kernels; 0 means 512 MiB.
	Cache outboard.Bytes
	// NoCache keeps no compiled kernels: each session compiles its own, and no compile step runs.
	NoCache bool
	// Memory bounds the machine's memory that a session's control group may use beyond the device
	// memory of its lease; 0 means 2 GiB and a quarter of the machine's memory. All sessions of a
	// lease together may use twice that.
	Memory outboard.Bytes
}

func (s *Sandbox) setDefaults() {
	if s.FirstUID == 0 {
		s.FirstUID, s.UIDs = 0x70000000, 1<<16
	}
	if s.Cache == 0 {
		s.Cache = 512 << 20
	}
	if s.Memory == 0 {
		s.Memory = 2<<30 + machineMemory()/4
	}
}

// Limits of a worker, beside those of its lease.
const (
	tmpSize     = 512 << 20 // of /tmp
	shmSize     = 64 << 20  // of /dev/shm
	maxFiles    = 4096
	maxFileSize = 512 << 20
	maxTasks    = 4096 // processes and threads of one user
)

// sandboxConfig returns the sandbox configuration of a session with the given temporary folder and
// user.
func (h *Host) sandboxConfig(tmp string, uid int) (sandbox.Config, error) {
	s := &h.opts.Sandbox
	scratch := filepath.Join(tmp, "root")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return sandbox.Config{}, err
	}
	return sandbox.Config{
		Namespaces: h.namespaces.List(), UID: uid, GID: uid, Scratch: scratch,
		Readable: s.Readable, Devices: s.Devices, Calls: s.Calls, TmpSize: tmpSize, ShmSize: shmSize,
		Files: maxFiles, FileSize: maxFileSize, Tasks: maxTasks,
	}, nil
}

// inspectLimit is how long a worker may take to report its isolation.
const inspectLimit = time.Minute

// inspect starts a worker that only reports its isolation, and records the report.
func (h *Host) inspect(ctx context.Context) error {
	tmp := filepath.Join(h.tmp(), "inspect")
	cache := filepath.Join(tmp, "cache")
	defer func() { _ = rmtree.Remove(tmp) }() // what is left is removed at the next start
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return err
	}
	config, err := h.sandboxConfig(tmp, h.caches.uids.first)
	if err != nil {
		return err
	}
	ours, theirs, err := control.Pair()
	if err != nil {
		return err
	}
	defer ours.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return errors.Join(err, theirs.Close())
	}
	defer null.Close()
	p, err := h.startProcess(tmp, nil, null, theirs)
	_ = theirs.Close()
	if err != nil {
		return err
	}
	missing := h.inspectGroups(p)
	limit := time.AfterFunc(inspectLimit, p.kill)
	defer limit.Stop()
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	err = ours.Send(control.Message{Type: control.TypeConfig, Config: &control.Config{
		Session: "inspect", CacheDir: cache, TmpDir: tmp, Sandbox: config, Inspect: true, Cgroup: missing == nil,
	}})
	for err == nil {
		var m control.Message
		if m, err = ours.Receive(); err == nil && m.Isolation != nil {
			h.isolation = *m.Isolation
			break
		}
		if m.Type == control.TypeFinal && m.Reason != "" {
			err = errors.New(m.Reason)
		}
	}
	if missing != nil {
		h.isolation.Gaps = append(h.isolation.Gaps, fmt.Sprintf("%s: %v", sandbox.Cgroup, missing))
	}
	p.kill()
	exit := errors.Join(p.wait(), p.group.Remove())
	if err != nil {
		return fmt.Errorf("inspect the isolation of workers: %w", errors.Join(err, exit, errorOf(p.exitMessage())))
	}
	return nil
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// reportIsolation logs the isolation of workers.
func (h *Host) reportIsolation() {
	log := h.opts.Log
	log.Info("workers are isolated", "mechanisms", h.isolation.Mechanisms)
	for _, gap := range h.isolation.Gaps {
		log.Warn("a mechanism of isolation is missing", "reason", gap)
	}
	if err := h.Refused(); err != nil {
		log.Error("no session can start", "error", err)
	}
}

// Isolation returns the names of the mechanisms that isolate this host's workers, separated by
// commas.
func (h *Host) Isolation() string {
	names := make([]string, len(h.isolation.Mechanisms))
	for i, m := range h.isolation.Mechanisms {
		names[i] = string(m)
	}
	return strings.Join(names, ",")
}

// Refused returns why no session can start on this machine, nil if sessions can.
func (h *Host) Refused() error {
	missing := sandbox.Missing(h.opts.Sandbox.Require, h.isolation.Mechanisms)
	if len(missing) == 0 {
		return nil
	}
	var why strings.Builder
	for _, gap := range h.isolation.Gaps {
		if name, _, _ := strings.Cut(gap, ":"); slices.Contains(missing, sandbox.Mechanism(name)) {
			why.WriteString("; " + gap)
		}
	}
	return outboard.Errorf(outboard.Denied, "session", "this machine can't isolate workers by %v, which `--sandbox require=` demands%s", missing, &why)
}
