package calls_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/calls/callstest"
	"github.com/outboard-run/outboard/internal/helper"
	pools "github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// childArg makes this binary a process that carries calls.
const childArg = "child-process"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		err := calls.Run(context.Background(), os.NewFile(3, "control"), calls.ProcessOptions{
			Version: "test", Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// station is a node's calls in processes of their own, and nothing else of a node.
type station struct {
	*calls.Host
	t        *testing.T
	name     outboard.NodeID
	socket   string
	plain    string
	registry *services.Registry
}

// station starts one. Its pool is real: the processes look there for who is who.
func (p *pool) station(name outboard.NodeID) *station {
	t := p.t
	t.Helper()
	id, err := p.ca.NewIdentity(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys := t.TempDir()
	if err := id.Save(keys); err != nil {
		t.Fatal(err)
	}
	door := listen(t)
	member, err := pools.Open(t.Context(), pools.Options{
		State: p.state, Identity: id, Self: outboard.Node{Boot: "1", Addr: door.Addr().String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := services.Open(t.Context(), services.Options{State: p.state, Members: member, Self: name, Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: a socket's path is short.
	folder, err := os.MkdirTemp("", "outboard-calls-")
	if err != nil {
		t.Fatal(err)
	}
	s := &station{t: t, name: name, socket: filepath.Join(folder, "calls.sock"), registry: registry}
	programs, err := unixsock.Listen(s.socket)
	if err != nil {
		t.Fatal(err)
	}
	port := listen(t)
	s.plain = port.Addr().String()
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("station", name)
	s.Host, err = calls.OpenHost(t.Context(), calls.HostOptions{
		Config: calls.Config{Self: name, Boot: "1", Identity: keys},
		Launch: helper.Command([]string{os.Args[0], childArg}, log),
		State:  p.state, Registry: registry, Programs: programs, Plain: port.(*net.TCPListener), Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.doors(door) })
	t.Cleanup(func() {
		_ = door.Close()
		serving.Wait()
		s.close()
		_ = registry.Close()
		_ = member.Close()
		_ = os.RemoveAll(folder)
	})
	return s
}

// close ends the processes, and looks whether they have ended.
func (s *station) close() {
	processes := s.Processes()
	if err := s.Close(); err != nil {
		s.t.Error(err)
	}
	for _, p := range processes {
		if err := syscall.Kill(p.PID, 0); !errors.Is(err, syscall.ESRCH) {
			s.t.Errorf("process %d of %s is left: %v", p.Number, s.name, err)
		}
	}
}

// doors lets other nodes in.
func (s *station) doors(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		if err := s.ServePeer(nc, nil); err != nil {
			s.t.Log(err)
		}
		_ = nc.Close()
	}
}

func (s *station) serve(impl testgrpc.TestServiceServer) {
	t := s.t
	t.Helper()
	l, err := fabric.Listen("node:" + s.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := fabric.NewServer()
	testgrpc.RegisterTestServiceServer(server, impl)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (s *station) dial() testgrpc.TestServiceClient {
	c, err := fabric.Dial("node:" + s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return testgrpc.NewTestServiceClient(c)
}

func (s *station) dialPlain() testgrpc.TestServiceClient {
	c, err := grpc.NewClient(s.plain, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return testgrpc.NewTestServiceClient(c)
}

// A load is what one program does without a pause: calls, and a stream that stays.
type load struct {
	name   string
	client testgrpc.TestServiceClient
	calls  atomic.Uint64
	sent   atomic.Uint64 // on the stream that stays
}

// run makes calls, and short streams among them, until stop is closed.
func (l *load) run(stop <-chan struct{}) error {
	ctx := context.Background()
	for n := uint64(1); open(stop); n++ {
		if err := callstest.Call(ctx, l.client, n, int(n%5)*700); err != nil {
			return fmt.Errorf("%s: call %d: %w", l.name, n, err)
		}
		if n%16 == 0 {
			if err := callstest.Burst(ctx, l.client, n, 3, 0); err != nil {
				return fmt.Errorf("%s: stream %d: %w", l.name, n, err)
			}
		}
		l.calls.Add(1)
	}
	return nil
}

// stay is one stream until stop is closed.
func (l *load) stay(stop <-chan struct{}) error {
	err := callstest.Chat(context.Background(), l.client, 100, func() bool { return open(stop) }, func() { l.sent.Add(1) })
	if err != nil {
		return fmt.Errorf("%s: long stream: %w", l.name, err)
	}
	return nil
}

func open(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	default:
		return true
	}
}

// traffic is loads that run until end.
type traffic struct {
	t      *testing.T
	loads  []*load
	stop   chan struct{}
	errs   chan error
	runs   sync.WaitGroup
	failed atomic.Bool
}

func newTraffic(t *testing.T, clients map[string]testgrpc.TestServiceClient) *traffic {
	f := &traffic{t: t, stop: make(chan struct{}), errs: make(chan error, 64)}
	for name, c := range clients {
		l := &load{name: name, client: c}
		f.loads = append(f.loads, l)
		f.goes(func() error { return l.run(f.stop) })
		f.goes(func() error { return l.stay(f.stop) })
	}
	return f
}

func (f *traffic) goes(run func() error) {
	f.runs.Go(func() {
		if err := run(); err != nil {
			f.failed.Store(true)
			f.errs <- err
		}
	})
}

// flows waits until every load has made some more calls, and its stream has gone on.
func (f *traffic) flows() {
	f.t.Helper()
	for _, l := range f.loads {
		calls, sent := l.calls.Load(), l.sent.Load()
		await(f.t, l.name+" goes on", func() bool {
			return f.failed.Load() || l.calls.Load() > calls+3 && l.sent.Load() > sent+3
		})
	}
	if f.failed.Load() {
		f.end()
		f.t.FailNow()
	}
}

func (f *traffic) end() {
	close(f.stop)
	f.runs.Wait()
	close(f.errs)
	for err := range f.errs {
		f.t.Error(err)
	}
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for !f() {
		select {
		case <-limit.C:
			t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ready waits until the service is reached from everywhere.
func ready(t *testing.T, clients map[string]testgrpc.TestServiceClient) {
	t.Helper()
	for name, c := range clients {
		await(t, name+" reaches the service", func() bool {
			_, err := c.EmptyCall(t.Context(), &testgrpc.Empty{})
			return err == nil
		})
	}
}

// Upgrades while calls flow from everywhere: each call is answered once and right,
// each stream goes on, and nothing is left at the end.
func TestUpgrades(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.station("harbour"), p.station("dinghy")
	harbour.serve(callstest.Echo{})
	harbour.serve(callstest.Echo{})
	clients := map[string]testgrpc.TestServiceClient{
		"same node":          harbour.dial(),
		"same node, gRPC":    harbour.dialPlain(),
		"another node":       dinghy.dial(),
		"another node, gRPC": dinghy.dialPlain(),
	}
	ready(t, clients)
	f := newTraffic(t, clients)
	f.flows()
	for n := range upgrades {
		s := harbour
		if n%4 == 3 {
			s = dinghy
		}
		u, err := s.Upgrade(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if u.To.Number != u.From.Number+1 || u.To.PID == u.From.PID {
			t.Errorf("upgrade %d: %+v", n, u)
		}
		f.flows()
	}
	f.end()
	for _, s := range []*station{harbour, dinghy} {
		await(t, string(s.name)+" has one process", func() bool { return len(s.Processes()) == 1 })
	}
	if n := len(harbour.registry.Endpoints()); n != 2 {
		t.Errorf("%d endpoints, want 2", n)
	}
}

// A binary that does not work leaves everything as it was, and says why.
func TestUpgradeToBrokenBinary(t *testing.T) {
	p := newPool(t)
	harbour := p.station("harbour")
	harbour.serve(callstest.Echo{})
	c := harbour.dial()
	ready(t, map[string]testgrpc.TestServiceClient{"client": c})
	before := harbour.Processes()
	for name, test := range map[string]struct{ binary, says string }{
		"fails":      {"/bin/false", "exit status 1; the process that carries calls was not replaced"},
		"does other": {"/bin/true", "it exited at once"},
		"no program": {os.DevNull, "permission denied"},
		"not there":  {"/no/such/program", "no such file"},
	} {
		u, err := harbour.Upgrade(t.Context(), test.binary)
		if outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), test.says) {
			t.Fatalf("%s: %v, %+v", name, err, u)
		}
		if _, err := c.EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := harbour.Processes(); len(after) != 1 || after[0] != before[0] {
		t.Errorf("processes: %+v, were %+v", after, before)
	}
	if _, err := harbour.Upgrade(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// A process that is killed takes its calls with it, and the next ones work.
func TestProcessDies(t *testing.T) {
	p := newPool(t)
	harbour := p.station("harbour")
	harbour.serve(callstest.Echo{})
	c := harbour.dial()
	ready(t, map[string]testgrpc.TestServiceClient{"client": c})
	for range 2 {
		s, err := c.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: callstest.Payload(1, 0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(harbour.Processes()[0].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream on a dead process: %v", err)
		}
		ready(t, map[string]testgrpc.TestServiceClient{"client": c})
	}
	if n := len(harbour.registry.Endpoints()); n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
}
