package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// What makes this program a worker: a variable, or its argument where a host chooses the
// environment.
const workerVariable, workerArgument = "OUTBOARD_TEST_WORKER", "test-worker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == litterArgument {
		os.Exit(litter())
	}
	if len(os.Args) == 2 && os.Args[1] == stepArgument {
		os.Exit(stepDescriptors())
	}
	if os.Getenv(workerVariable) == "" && (len(os.Args) != 2 || os.Args[1] != workerArgument) {
		os.Exit(m.Run())
	}
	if err := Main(context.Background()); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// Ops and kinds of opencl.api, written down again: the wire must not change.
const (
	opCreateContext, opCreateQueue, opFinish, opCreateBuffer     = 0x0b, 0x12, 0x18, 0x19
	opCreateProgram, opBuild, opCreateKernel, opSetArg, opLaunch = 0x37, 0x3d, 0x46, 0x4b, 0x69
	opRead, opOutput                                             = 0x58, 0x8104
)

type peer struct {
	t    *testing.T
	cmd  *exec.Cmd
	ring *shm.Ring
	conn *control.Conn
	in   *session.Reader
	out  *session.Writer
	errs bytes.Buffer
	text []byte // what kernels printed
}

func start(t *testing.T, cfg control.Config) *peer {
	t.Helper()
	requireDevice(t)
	ring, err := shm.Create(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	node, far, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, ring: ring, conn: node}
	namespaces := sandbox.DetectNamespaces()
	cfg = isolated(t, cfg, namespaces)
	p.cmd = exec.Command(os.Args[0])
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	namespaces.Apply(p.cmd.SysProcAttr)
	p.cmd.Env = append(os.Environ(), workerVariable+"=1", "GORACE=atexit_sleep_ms=0")
	p.cmd.ExtraFiles = []*os.File{ring.File(), far}
	p.cmd.Stderr = &p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	t.Cleanup(func() {
		_ = ring.Close(shm.Done)
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	cfg.API = outboard.OpenCL
	if err := p.conn.Send(control.Message{Type: control.TypeConfig, Config: &cfg}); err != nil {
		t.Fatal(err)
	}
	p.out = session.NewWriter(ring, ring.Area())
	if p.in, err = session.NewReader(ring, ring.Area()); err != nil {
		t.Fatal(err)
	}
	return p
}

func requireDevice(t *testing.T) {
	t.Helper()
	devices, err := Probe(t.Context())
	need.Require(t, "opencl", err == nil && len(devices) > 0, fmt.Sprint("install pocl-opencl-icd: ", err))
}

// isolated completes a configuration as a node does.
func isolated(t *testing.T, cfg control.Config, namespaces sandbox.Namespaces) control.Config {
	t.Helper()
	cfg.TmpDir, cfg.CacheDir = t.TempDir(), os.TempDir()+"/outboard-test-pocl-"+strconv.Itoa(os.Getuid())
	c := sandbox.Config{Namespaces: namespaces.List(), Scratch: cfg.TmpDir, TmpSize: 64 << 20, ShmSize: 1 << 20}
	if err := os.MkdirAll(cfg.CacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 && !namespaces.User() {
		c.UID, c.GID = 0x70000001, 0x70000001
		if err := os.Chown(cfg.CacheDir, c.UID, c.GID); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Sandbox = c
	return cfg
}

func (p *peer) ready() {
	p.t.Helper()
	for {
		m, err := p.conn.Receive()
		if err != nil {
			p.t.Fatalf("worker: %v\n%s", err, p.errs.String())
		}
		switch m.Type {
		case control.TypeReady:
			return
		case control.TypeFinal:
			p.t.Fatalf("worker: %s", m.Reason)
		default:
		}
	}
}

func (p *peer) final() control.Message {
	for {
		m, err := p.conn.Receive()
		if err != nil || m.Type == control.TypeFinal {
			return m
		}
	}
}

func (p *peer) send(op uint16, fields ...any) {
	p.t.Helper()
	if err := p.out.Send(session.Header{Op: op, Flags: session.Alone}, body(fields)); err != nil {
		p.t.Fatal(err)
	}
}

func body(fields []any) []byte {
	e := wire.NewEncoder(nil)
	for _, f := range fields {
		switch v := f.(type) {
		case int:
			e.I64(int64(v))
		case string:
			e.String(v, true)
		case []uint64:
			e.Words(v)
		case []byte:
			e.Bytes(v)
		}
	}
	return e.Body()
}

// call returns the error of the session when it ends before the reply.
func (p *peer) call(op uint16, fields ...any) (int32, []byte, error) {
	p.t.Helper()
	if err := p.out.Send(session.Header{Op: op, Flags: session.Alone | session.WantReply, Call: 1}, body(fields)); err != nil {
		return 0, nil, err
	}
	for {
		h, b, err := p.in.Next()
		if err != nil {
			return 0, nil, err
		}
		b = bytes.Clone(b)
		var bulk []byte
		for {
			piece, err := p.in.NextBulk()
			if err != nil {
				break
			}
			bulk = append(bulk, piece...)
		}
		if h.Op == opOutput {
			d := wire.NewDecoder(b)
			p.text = append(p.text, d.Bytes()...)
		}
		if h.Flags&session.IsReply != 0 {
			return h.Status, bulk, nil
		}
	}
}

// kernel runs one kernel over a buffer of 16 numbers and returns them.
func (p *peer) kernel(source string) ([]byte, error) {
	p.t.Helper()
	none := []uint64(nil)
	p.send(opCreateContext, none, []uint64{2}, 0, 0x100)
	p.send(opCreateQueue, 0x100, 2, 0, 0x101)
	p.send(opCreateBuffer, 0x100, 1, 64, 0x102)
	p.send(opCreateProgram, 0x100, []byte(source), 0x103)
	if status, _, err := p.call(opBuild, 0x103, none, []byte(nil), []byte(nil)); err != nil || status != 0 {
		return nil, errors.Join(err, errors.New("build failed"))
	}
	p.send(opCreateKernel, 0x103, "k", 0x104)
	p.send(opSetArg, 0x104, 0, 8, 2, 0x102, []byte(nil))
	p.send(opLaunch, 0x101, 0x104, 1, none, []uint64{16}, none, none, 0)
	if _, _, err := p.call(opFinish, 0x101); err != nil {
		return nil, err
	}
	_, data, err := p.call(opRead, 0x101, 0x102, 1, 0, 64, none, 0)
	return data, err
}

func TestSession(t *testing.T) {
	p := start(t, control.Config{Session: "s"})
	p.ready()
	got, err := p.kernel(`kernel void k(global uint *a) { a[get_global_id(0)] = 7; if (get_global_id(0) == 3) printf("three\n"); }`)
	if err != nil {
		t.Fatal(err)
	}
	if binary.LittleEndian.Uint32(got[60:]) != 7 {
		t.Errorf("the kernel wrote %v", got)
	}
	if string(p.text) != "three\n" {
		t.Errorf("the kernel printed %q", p.text)
	}
	_ = p.ring.Close(shm.Done)
	if m := p.final(); m.Reason != "" || m.Type != control.TypeFinal {
		t.Errorf("final message %+v", m)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("worker: %v", err)
	}
}

// TestMuchOutput: a read does not keep the output back that the kernel before it
// must get rid of.
func TestMuchOutput(t *testing.T) {
	p := start(t, control.Config{Session: "s"})
	p.ready()
	none := []uint64(nil)
	if _, err := p.kernel(`kernel void k(global uint *a) { for (uint i = 0; i < 1000; i++) printf("0123456789 0123456789 0123456789 0123456789\n"); }`); err != nil {
		t.Fatal(err)
	}
	p.text = nil
	p.send(opLaunch, 0x101, 0x104, 1, none, []uint64{16}, none, none, 0)
	if status, _, err := p.call(opRead, 0x101, 0x102, 1, 0, 64, none, 0); err != nil || status != 0 {
		t.Errorf("read: %d, %v", status, err)
	}
	if want := 16 * 1000 * 44; len(p.text) != want {
		t.Errorf("%d bytes were printed before the read's answer, want %d", len(p.text), want)
	}
}

// TestCrash: a kernel that crashes ends the process at once, in few words.
func TestCrash(t *testing.T) {
	p := start(t, control.Config{Session: "s"})
	p.ready()
	done := make(chan error, 1)
	go func() {
		err := p.cmd.Wait()
		_ = p.ring.Fail(&outboard.Error{Op: "session", Kind: outboard.SessionLost})
		done <- err
	}()
	_, err := p.kernel(`kernel void k(global uint *a) { volatile global uint *p = (volatile global uint *)(a + (1ul << 45)); *p = 1; }`)
	if outboard.KindOf(err) != outboard.SessionLost {
		t.Errorf("the call in flight: %v", err)
	}
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the worker lives on")
	}
	if why := ExitReason(p.cmd.ProcessState); !strings.Contains(why, "a kernel crashed") {
		t.Errorf("reason: %s", why)
	}
	if n := strings.Count(p.errs.String(), "\n"); n > 20 {
		t.Errorf("%d lines of last words:\n%s", n, p.errs.String())
	}
}

// TestNodeDies: a worker does not outlive its node's end of the socket.
func TestNodeDies(t *testing.T) {
	p := start(t, control.Config{Session: "s"})
	p.ready()
	p.conn.Close()
	if err := p.cmd.Wait(); err == nil {
		t.Error("the worker ended as if nothing had happened")
	}
	if _, _, err := p.call(opFinish, 0x101); err == nil {
		t.Error("the client's ring is open")
	}
}

func TestDeviceChanged(t *testing.T) {
	p := start(t, control.Config{Session: "s", DeviceName: "another"})
	if m := p.final(); m.Kind != outboard.NoDevice || !strings.Contains(m.Reason, "another") {
		t.Errorf("final message %+v", m)
	}
}

// TestConfined looks at the worker from outside.
func TestConfined(t *testing.T) {
	p := start(t, control.Config{Session: "s"})
	p.ready()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(program(t, p.cmd.Process.Pid)) + "/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // The thread has ended.
		}
		for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t"} {
			if err != nil || !strings.Contains(string(status), want) {
				t.Errorf("%s has no %q, %v", path, want, err)
			}
		}
	}
}

// program returns the process of the worker: in a PID namespace it is a child of the init, whose
// threads are not all confined.
func program(t *testing.T, first int) int {
	t.Helper()
	children, err := filepath.Glob("/proc/" + strconv.Itoa(first) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range children {
		text, _ := os.ReadFile(path) // The thread may have ended.
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return pid
		}
	}
	return first
}
