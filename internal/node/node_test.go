package node_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/accel/lend/fake"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/node"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/unixsock"
	"github.com/outboard-run/outboard/outboardtest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(brokenOutVariable); path != "" && len(os.Args) == 3 && os.Args[2] == "tenant" {
		if err := breakOut(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	outboardtest.Main(m)
}

func pair() []outboardtest.Spec {
	return []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy", NoDevices: true}}
}

// running is an `outboard run` on its way.
type running struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr *strings.Builder
}

// run starts `outboard run` with a program that uses a fake device.
func run(t *testing.T, n *outboardtest.Node, flags []string, program ...string) *running {
	t.Helper()
	args := append(append([]string{"run"}, flags...), "--")
	r := &running{Cmd: n.Command(t.Context(), append(args, outboardtest.Program(program...)...)...), stderr: &strings.Builder{}}
	r.Stderr = r.stderr
	r.WaitDelay = 2 * time.Minute
	stdout, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdout = bufio.NewReader(stdout)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// line waits for the program's next line.
func (r *running) line(t *testing.T) string {
	t.Helper()
	text, err := r.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("program said %q: %v\n%s", text, err, r.stderr)
	}
	return strings.TrimSuffix(text, "\n")
}

// end waits for the end and returns what was left to read, and the exit status.
func (r *running) end(t *testing.T) (stdout string, status int) {
	t.Helper()
	rest, err := io.ReadAll(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Wait() // the status tells
	return string(rest), r.ProcessState.ExitCode()
}

// eventually waits for what other goroutines and processes bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

// count asks a node for a list and returns how long it is.
func count[T any](t *testing.T, list func(context.Context) ([]T, error)) int {
	t.Helper()
	all, err := list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func empty(t *testing.T, p *outboardtest.Pool) {
	t.Helper()
	eventually(t, "sessions and leases are gone", func() bool {
		c := p.Node("harbour").Client()
		return count(t, c.Sessions) == 0 && count(t, c.Leases) == 0
	})
	eventually(t, "the folders of sessions are gone", func() bool {
		left, err := filepath.Glob(filepath.Join(p.Node("harbour").Data, "tmp", "*"))
		return err == nil && len(left) == 0
	})
}

func TestPrograms(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	tests := map[string]struct {
		flags, program []string
		stdout, stderr string
		status         int
	}{
		"echo":             {program: []string{"hello", "again"}, stdout: "hello\nagain\n"},
		"share of memory":  {flags: []string{"--memory", "64MiB", "--device", "type=gpu"}, program: []string{"x"}, stdout: "x\n"},
		"two devices":      {flags: []string{"--count", "2"}, program: []string{"leases", "a", "lease=1", "b"}, stdout: "2\na\nb\n"},
		"no such lease":    {program: []string{"lease=1", "x"}, stderr: "program: hello: lease 1 of 1\n", status: 3},
		"worker crashes":   {program: []string{fake.Crash}, status: 17, stderr: "outboard: session lost: session: the worker on harbour/opencl/1 crashed (exit status 1: fake worker: the kernel went wrong)\n"},
		"worker gives up":  {program: []string{fake.Fail}, status: 17, stderr: "outboard: session lost: session: the worker on harbour/opencl/1 ended: out of fake memory\n"},
		"no device fits":   {flags: []string{"--device", "type=accelerator"}, program: []string{"x"}, status: 12, stderr: "outboard: select \"type=accelerator\": no device meets \"type=accelerator\"; they have \"cpu\", \"gpu\"\n"},
		"too many devices": {flags: []string{"--count", "3"}, program: []string{"x"}, status: 12, stderr: "outboard: lease 3 devices: the pool has only 2 that fit\n"},
	}
	for _, from := range []outboard.NodeID{"harbour", "dinghy"} {
		for name, test := range tests {
			t.Run(string(from)+"/"+name, func(t *testing.T) {
				r := run(t, p.Node(from), test.flags, test.program...)
				stdout, status := r.end(t)
				if diff := cmp.Diff(test.stdout, stdout); diff != "" {
					t.Errorf("standard output (-want +got):\n%s", diff)
				}
				if status != test.status || !strings.Contains(r.stderr.String(), test.stderr) {
					t.Errorf("got status %d and %q, want %d and %q", status, r.stderr, test.status, test.stderr)
				}
				if status == 17 && strings.Count(r.stderr.String(), "outboard:") != 1 {
					t.Errorf("more than one line about the loss:\n%s", r.stderr)
				}
				empty(t, p)
			})
		}
	}
}

func TestNothingIsLeftOfWhatWasKilled(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	for _, from := range []outboard.NodeID{"harbour", "dinghy"} {
		t.Run(string(from), func(t *testing.T) {
			r := run(t, p.Node(from), nil, "hello", "wait")
			r.line(t)
			r.line(t)
			eventually(t, "there are one session and one lease", func() bool {
				harbour := p.Node("harbour").Client()
				return count(t, harbour.Sessions) == 1 && count(t, harbour.Leases) == 1
			})
			if err := r.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			// The program goes on without its device, until it notices.
			if _, status := r.end(t); status != -1 {
				t.Errorf("got status %d, want the kill", status)
			}
			empty(t, p)
		})
	}
}

func TestWaitingForATurn(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	cpu := []string{"--device", "type=cpu"}
	first := run(t, p.Node("harbour"), cpu, "hello", "wait")
	first.line(t)
	refused := run(t, p.Node("dinghy"), append(cpu, "--no-wait"), "x")
	if _, status := refused.end(t); status != 13 || !strings.Contains(refused.stderr.String(), "harbour/opencl/0 by node harbour") {
		t.Errorf("got status %d and %q, want Busy and the holder", status, refused.stderr)
	}
	late := run(t, p.Node("dinghy"), append(cpu, "--timeout", "50ms"), "x")
	if _, status := late.end(t); status != 13 || !strings.Contains(late.stderr.String(), "waited 50ms for a device") {
		t.Errorf("got status %d and %q, want Busy after the timeout", status, late.stderr)
	}
	progress := make(chan client.Waiting, 16)
	var waited sync.WaitGroup
	defer waited.Wait()
	waited.Go(func() {
		sel, err := outboard.ParseSelector("type=cpu")
		if err != nil {
			t.Error(err)
			return
		}
		hold, err := p.Node("dinghy").Client().Acquire(t.Context(), client.LeaseRequest{Selector: sel}, func(w client.Waiting) { progress <- w })
		if err != nil {
			t.Error(err)
			return
		}
		if err := hold.Close(); err != nil {
			t.Error(err)
		}
	})
	w := <-progress
	if w.Position != 1 || len(w.Holders) != 1 || w.Holders[0].Holder != "harbour" {
		t.Errorf("got %+v, want the first place behind harbour", w)
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, status := first.end(t); status != 128+15 {
		t.Errorf("got status %d, want that of SIGTERM", status)
	}
}

func TestKillSession(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	for _, from := range []outboard.NodeID{"harbour", "dinghy"} {
		t.Run(string(from), func(t *testing.T) {
			r := run(t, p.Node(from), nil, "hello", "wait")
			r.line(t)
			sessions, err := p.Node("harbour").Client().Sessions(t.Context())
			if err != nil || len(sessions) != 1 {
				t.Fatalf("got %v, %v, want one session", sessions, err)
			}
			if err := p.Node("harbour").Client().KillSession(t.Context(), sessions[0].ID); err != nil {
				t.Fatal(err)
			}
			want := "it was killed on the device's node by `outboard sessions kill`"
			if _, status := r.end(t); status != 17 || !strings.Contains(r.stderr.String(), want) {
				t.Errorf("got status %d and %q, want 17 and %q", status, r.stderr, want)
			}
			empty(t, p)
		})
	}
}

// A node's end in good order ends its sessions at once, with a reason.
func TestDevicesNodeStops(t *testing.T) {
	t.Parallel()
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	r := run(t, p.Node("dinghy"), nil, "hello", "wait")
	r.line(t)
	p.Node("harbour").Stop()
	if _, status := r.end(t); status != 17 || !strings.Contains(r.stderr.String(), "the device's node was stopped") {
		t.Errorf("got status %d and %q, want 17 and the reason", status, r.stderr)
	}
}

// The holder's node holds the lease: without it the session ends when the lease
// does.
func TestHoldersNodeStops(t *testing.T) {
	t.Parallel()
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	r := run(t, p.Node("dinghy"), nil, "hello", "wait")
	r.line(t)
	p.Node("dinghy").Stop()
	if _, status := r.end(t); status != 17 || !strings.Contains(r.stderr.String(), "the program's own node") {
		t.Errorf("got status %d and %q, want 17", status, r.stderr)
	}
	empty(t, p)
}

// upProcess starts a node as a process that can be killed.
func upProcess(t *testing.T, n *outboardtest.Node, args ...string) *exec.Cmd {
	t.Helper()
	cmd := n.Command(t.Context(), append([]string{"up", "--name", string(n.Name), "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the node is up", func() bool {
		_, err := n.Client().Status(t.Context())
		return err == nil
	})
	return cmd
}

// gone reports whether a process no longer runs.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

func TestDevicesNodeIsKilled(t *testing.T) {
	t.Parallel()
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "dinghy", NoDevices: true}}})
	token, err := p.Node("dinghy").Client().Token(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.MkdirTemp("", "outboardtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	harbour := &outboardtest.Node{Name: "harbour", Data: data}
	up := upProcess(t, harbour, "--join", token.Addr, "--token", token.Token)
	restart := func() *exec.Cmd { return upProcess(t, harbour) } // for the whole test
	for _, from := range []*outboardtest.Node{p.Node("dinghy"), harbour} {
		t.Run(string(from.Name), func(t *testing.T) {
			eventually(t, "the device is known", func() bool {
				devices, err := from.Client().Devices(t.Context(), outboard.Selector{})
				return err == nil && len(devices) > 0
			})
			r := run(t, from, []string{"--dead-after", "2s"}, "hello", "wait")
			r.line(t)
			sessions, err := harbour.Client().Sessions(t.Context())
			if err != nil || len(sessions) != 1 {
				t.Fatalf("got %v, %v, want one session", sessions, err)
			}
			if err := up.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the worker went with its node", func() bool { return gone(sessions[0].Worker) })
			if _, status := r.end(t); status != 17 || !strings.Contains(r.stderr.String(), "session lost") {
				t.Errorf("got status %d and %q, want 17 and that the session was lost", status, r.stderr)
			}
			_ = up.Wait()
			up = restart()
		})
	}
}

// logged collects what nodes log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func TestWrongClaims(t *testing.T) {
	var log logged
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	acquire := func(from outboard.NodeID) (*client.Hold, []byte) {
		hold, err := p.Node(from).Client().Acquire(t.Context(), client.LeaseRequest{Memory: 1 << 20}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return hold, hold.Leases()[0].Claim
	}
	own, stale := acquire("harbour")
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	foreign, strangers := acquire("dinghy")
	defer foreign.Close()
	left := foreign.Leases()[0].Grant.Lease
	eventually(t, "only the other lease is left", func() bool {
		leases, err := p.Node("harbour").Client().Leases(t.Context())
		return err == nil && len(leases) == 1 && leases[0].Lease == left
	})
	tests := map[string]struct {
		claim []byte
		kind  outboard.Kind
	}{
		"nonsense":         {[]byte("nonsense"), outboard.Denied},
		"lease given back": {stale, outboard.LeaseLost},
		"another node's":   {strangers, outboard.Denied},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := log.count("session refused")
			_, err := borrow.Local(t.Context(), filepath.Join(p.Node("harbour").Data, node.SessionSocket), test.claim)
			if outboard.KindOf(err) != test.kind {
				t.Errorf("got %v of kind %v, want %v", err, outboard.KindOf(err), test.kind)
			}
			if got := log.count("session refused") - before; got != 1 {
				t.Errorf("logged %d times, want once", got)
			}
		})
	}
	if n := count(t, p.Node("harbour").Client().Sessions); n != 0 {
		t.Errorf("got %d sessions, want none", n)
	}
}

func TestThreeNodes(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "a"}, {Name: "b"}, {Name: "c", NoDevices: true}}})
	r := run(t, p.Node("c"), []string{"--count", "4"}, "leases", "w", "lease=1", "x", "lease=2", "y", "lease=3", "z")
	stdout, status := r.end(t)
	if diff := cmp.Diff("4\nw\nx\ny\nz\n", stdout); diff != "" || status != 0 {
		t.Errorf("status %d, %s (-want +got):\n%s", status, r.stderr, diff)
	}
}

func TestRestartKeepsThePool(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	p.Node("dinghy").Stop()
	p.Node("harbour").Stop()
	p.Node("harbour").Start()
	p.Node("dinghy").Start()
	r := run(t, p.Node("dinghy"), nil, "hello")
	if stdout, status := r.end(t); stdout != "hello\n" || status != 0 {
		t.Errorf("got %q, status %d: %s", stdout, status, r.stderr)
	}
}

func TestUsedTokenIsRefused(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}}})
	token, err := p.Node("harbour").Client().Token(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	join := func(name outboard.NodeID) error {
		n, err := node.New(node.Options{
			Data: t.TempDir(), Name: name, Listen: "127.0.0.1:0", Join: token.Addr, Token: token.Token,
			Offer: func(outboard.Device) bool { return false }, Helper: []string{"/bin/false"}, CallsInside: true,
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return n.Run(ctx, cancel)
	}
	if err := join("first"); err != nil {
		t.Fatalf("got %v, want the token to work once", err)
	}
	if err := join("second"); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("got %v, want Denied", err)
	}
}

// A node that is told to stop leaves the pool: the others need not find out that it is silent. On a
// busy machine it may be found silent before, so that is tried again.
func TestStoppedNodeLeaves(t *testing.T) {
	var log logged
	p := outboardtest.Start(t, outboardtest.Options{
		Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}, {Name: "dinghy", NoDevices: true, Process: true}},
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	left := func() bool { return log.count(`msg="a node left the pool" plane=pool node=harbour node=dinghy`) > 0 }
	for attempt := 0; ; attempt++ {
		silent := func() bool {
			return log.count(`msg="a node is silent, and counts as gone" plane=pool node=harbour node=dinghy`) > attempt
		}
		p.Node("dinghy").Stop()
		eventually(t, "dinghy is gone", func() bool { return left() || silent() })
		if left() {
			return
		}
		if attempt == 4 {
			t.Fatal("dinghy was found silent each time, and did not leave")
		}
		p.Node("dinghy").Start()
		eventually(t, "dinghy is back", func() bool { return count(t, p.Node("harbour").Client().Nodes) == 2 })
	}
}

// What is not the protocol is refused, logged once, and disturbs nobody.
func TestStrangersAtTheDoor(t *testing.T) {
	var log logged
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	r := run(t, p.Node("dinghy"), nil, "hello", "wait")
	r.line(t)
	status, err := p.Node("harbour").Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(t *testing.T, conn net.Conn){
		"nonsense": func(t *testing.T, conn net.Conn) {
			if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
				t.Error(err)
			}
		},
		"no certificate": func(t *testing.T, conn net.Conn) {
			c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{borrow.Protocol}})
			_ = c.HandshakeContext(t.Context()) // the refusal comes after the client's side
		},
		"unknown protocol": func(t *testing.T, conn net.Conn) {
			c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			if err := c.HandshakeContext(t.Context()); err == nil {
				t.Error("the handshake succeeded")
			}
		},
	}
	refused := log.count("peer refused")
	conn, err := net.Dial("tcp", status.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	probes := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"outboard-probe/1"}})
	if err := probes.HandshakeContext(t.Context()); err == nil {
		t.Error("probes of another version: the handshake succeeded")
	}
	_, _ = io.Copy(io.Discard, conn) // until the node has hung up, after the log
	if log.count("peer refused") != refused {
		t.Error("probes of another version are logged, every few seconds")
	}
	for name, knock := range tests {
		t.Run(name, func(t *testing.T) {
			before := log.count("peer refused")
			conn, err := net.Dial("tcp", status.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			knock(t, conn)
			// It hangs up.
			if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			eventually(t, "the refusal is logged", func() bool { return log.count("peer refused") > before })
			if got := log.count("peer refused") - before; got != 1 {
				t.Errorf("logged %d times, want once", got)
			}
		})
	}
	if got := count(t, p.Node("harbour").Client().Sessions); got != 1 {
		t.Errorf("got %d sessions, want the one that was there", got)
	}
	_ = r.Process.Signal(syscall.SIGTERM)
	if _, status := r.end(t); status != 128+15 {
		t.Errorf("got status %d, want that of SIGTERM: %s", status, r.stderr)
	}
}

// A stranger opens connections and sends nothing, or the beginning of a handshake: those beyond a bound
// are closed at once, and those of other addresses are served.
func TestSilentStrangers(t *testing.T) {
	for name, text := range map[string][]byte{"nothing": nil, "hello": hello(t, calls.Protocol)} {
		t.Run(name, func(t *testing.T) { testSilentStrangers(t, text) })
	}
}

// hello returns the first message of a handshake.
func hello(t *testing.T, protocol string) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	go func() { _ = client.HandshakeContext(t.Context()) }()
	b := make([]byte, 16<<10)
	n, err := near.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// limitDescriptors lowers the process's limit of descriptors until the test ends.
func limitDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }) // it was the limit before
}

func testSilentStrangers(t *testing.T, text []byte) {
	// A tenth of the descriptors bounds the connections. A busy machine can't make 512 handshakes
	// within the time limit of one.
	limitDescriptors(t, 1000)
	const most = 100
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	status, err := p.Node("harbour").Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dial := func(from string) net.Conn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", status.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	send := func() net.Conn {
		conn := dial("127.0.0.3")
		_, _ = conn.Write(text) // the node may have closed it
		return conn
	}
	// On a busy machine the time limit of handshakes may close the connections before all are open.
	n := closedBeforeOneMore(most, send)
	for attempt := 1; attempt < 5 && n > most/2; attempt++ {
		n = closedBeforeOneMore(most, send)
	}
	if n > most/2 {
		t.Errorf("one more was closed when %d others were closed", n)
	}
	other := tls.Client(dial("127.0.0.4"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{authority.JoinProtocol}})
	if err := other.HandshakeContext(t.Context()); err != nil {
		t.Errorf("another address: %v", err)
	}
}

// closedBeforeOneMore opens most connections, as many as an address may have, and one, which the node
// closes, and returns how many are closed when the node has closed one more. It closes all.
func closedBeforeOneMore(most int, send func() net.Conn) int {
	closed := make(chan struct{}, most+1)
	var ended sync.WaitGroup
	conns := make([]net.Conn, cap(closed))
	for i := range conns {
		conn := send()
		conns[i] = conn
		ended.Go(func() {
			_, _ = io.Copy(io.Discard, conn)
			closed <- struct{}{}
		})
	}
	<-closed
	_, _ = io.Copy(io.Discard, send())
	n := len(closed) + 1
	for _, conn := range conns {
		_ = conn.Close()
	}
	ended.Wait()
	return n
}

// A kernel runs as the node's user, who may do everything at the node's sockets.
func TestWorkersAtTheLocalSockets(t *testing.T) {
	var log logged
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	harbour := p.Node("harbour")
	for _, name := range []string{client.SocketName, node.SessionSocket} {
		t.Run(name, func(t *testing.T) {
			before := log.count("peer refused")
			r := run(t, harbour, nil, fake.Dial+filepath.Join(harbour.Data, name))
			got := r.line(t)
			if strings.Contains(got, "HTTP") || strings.Contains(got, "{") {
				t.Errorf("the node answered a worker: %s", got)
			}
			if _, status := r.end(t); status != 0 {
				t.Errorf("got status %d: %s", status, r.stderr)
			}
			if log.count("peer refused") == before {
				t.Error("the refusal was not logged")
			}
		})
	}
}

func TestLocalAPI(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}}})
	data := p.Node("harbour").Data
	info, err := os.Stat(filepath.Join(data, client.SocketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a socket for its owner alone", info.Mode(), err)
	}
	http := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsock.Dial(ctx, filepath.Join(data, client.SocketName))
	}}}
	defer http.CloseIdleConnections()
	tests := map[string]struct {
		path   string
		status int
		want   string
	}{
		"health":       {"/healthz", 200, "ok"},
		"build":        {"/metrics", 200, "outboard_build_info{"},
		"accelerator":  {"/metrics", 200, "outboard_accel_sessions 0"},
		"pool":         {"/metrics", 200, "outboard_pool_"},
		"profiles":     {"/debug/pprof/", 200, "goroutine"},
		"unknown path": {"/v3/nodes", 404, "the local API has no such path"},
		"bad selector": {"/v1/devices?selector=x", 400, "has no operator"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			response, err := http.Get("http://node" + test.path)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.want) {
				t.Errorf("got status %d, %.300s, %v, want %d with %q", response.StatusCode, body, err, test.status, test.want)
			}
		})
	}
}
