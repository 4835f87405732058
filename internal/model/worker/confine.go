package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// Confinement is the sandbox of a worker.
type Confinement struct {
	// Namespaces are the namespaces in which the launcher starts processes.
	Namespaces sandbox.Namespaces
	// UID is the user to which a worker changes if the node runs as root; 0 keeps the user.
	UID int
	// Dir is an empty folder of the node for the worker's root and temporary files.
	Dir string
	// Files is the folder with the model's files.
	Files string
	// Readable are folders that contain a library of the user.
	Readable []string
	// Devices are patterns of device files in addition to those of the known accelerators.
	Devices []string
	// Require are mechanisms without which models are not loaded.
	Require []sandbox.Mechanism
}

// Limits of a worker's resources besides memory.
const (
	tmpSize     = 256 << 20 // of /tmp
	shmSize     = 64 << 20  // of /dev/shm
	maxFiles    = 4096
	maxFileSize = 8 << 30 // tensors are in memory files
	maxTasks    = 4096
)

// hugePages is the folder in which the kernel says whether a process may have huge pages. Without it
// glibc asks for none (GLIBC_TUNABLES in workerEnviron).
const hugePages = "/sys/kernel/mm/transparent_hugepage"

// send makes the process isolate itself.
func (c *Confinement) send(conn *ipc.Conn) error {
	scratch, tmp := filepath.Join(c.Dir, "root"), filepath.Join(c.Dir, "tmp")
	for _, dir := range []string{scratch, tmp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return conn.Send(typeConfine, confinement{
		Require: c.Require,
		Sandbox: sandbox.Config{
			Namespaces: c.Namespaces.List(), UID: c.UID, GID: c.UID, Scratch: scratch, Fallback: []string{tmp},
			Writable: []sandbox.Bind{{Source: c.Files, Target: filesDir, NoExec: true, ReadOnly: true}},
			Readable: append(slices.Clone(c.Readable), hugePages), Devices: c.Devices, TmpSize: tmpSize, ShmSize: shmSize,
			Files: maxFiles, FileSize: maxFileSize, Tasks: maxTasks,
		},
	})
}

// Variables of the environment of the second execution: the first marks it, the second is the path
// inside the sandbox of the folder with the model's files, "" if it is unchanged.
const (
	isolatedVariable = "OUTBOARD_MODEL_WORKER_ISOLATED"
	filesVariable    = "OUTBOARD_MODEL_WORKER_FILES"
)

// filesDir is the folder of the model's files if the worker has its own root.
const filesDir = "/model"

// Main is the program of a worker's process: it isolates itself by the settings that the node sends
// on socket, executes itself again with the socket as the same descriptor, and then calls Run.
func Main(ctx context.Context, socket *os.File, opts ProcessOptions) error {
	if os.Getenv(isolatedVariable) != "" {
		opts.files = os.Getenv(filesVariable)
		return Run(ctx, socket, opts)
	}
	c, err := receiveConfinement(ctx, socket)
	if err != nil {
		return fmt.Errorf("isolate the model's process: %w", err)
	}
	inside, err := sandbox.Enter(c.Sandbox)
	if err != nil {
		return fmt.Errorf("isolate the model's process: %w", err)
	}
	if missing := sandbox.Missing(c.Require, inside.Mechanisms); len(missing) > 0 {
		return outboard.Errorf(outboard.Denied, "isolate the model's process",
			"this machine lacks what --sandbox require= demands: %v %v", missing, inside.Gaps)
	}
	environ := workerEnviron()
	if inside.OwnRoot() {
		environ = append(environ, filesVariable+"="+filesDir)
	}
	return inside.Exec(os.Args, environ, socket)
}

// receiveConfinement receives the first message and leaves the socket open.
func receiveConfinement(ctx context.Context, socket *os.File) (c confinement, err error) {
	own, err := helper.Duplicate(socket)
	if err != nil {
		return c, err
	}
	conn, err := ipc.FromFile(own, ipc.Options{MaxReceived: 64 << 10})
	if err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, confineLimit)
	defer cancel()
	m, err := conn.Receive(ctx)
	if err != nil {
		return c, errors.Join(err, conn.Close())
	}
	defer m.Close()
	if m.Type != typeConfine {
		return c, errors.Join(outboard.Errorf(outboard.Protocol, "", "unexpected message of type %.40q", m.Type), conn.Close())
	}
	return c, errors.Join(m.Decode(&c), conn.Close())
}

// workerEnviron returns the environment without the variables that contain the node's secrets or
// proxies.
func workerEnviron() []string {
	// llama.cpp would start a debugger when it aborts. It also clears its whole attention state
	// when it loads a model: huge pages make that several times faster (glibc 2.35 and later,
	// mallopt(3)).
	env := []string{isolatedVariable + "=1", "GGML_NO_BACKTRACE=1", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "TMPDIR=" + sandbox.TmpDir, "HOME=" + sandbox.TmpDir}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GOMAXPROCS":
			env = append(env, v)
		}
	}
	return env
}
