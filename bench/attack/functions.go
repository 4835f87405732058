package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// appOf is the manifest of a tenant's app, victim or attacker.
const appOf = `app: %[1]s
tenant: %[1]s
functions:
  work: {module: guest.wasm, limits: {memory: 128MiB, deadline: 30s, concurrency: 64, queue: 1024}}
workflows:
  flow: flow.yaml
routes:
  - {path: /flow, methods: [POST], workflow: flow, wait: true}
  - {path: /socket, websocket: work, request: 1MiB}
  - {path: "/{what}", methods: [GET, POST], function: work, request: 16MiB}
`

const flowOf = `document: {dsl: '1.0.0', namespace: attack, name: flow, version: '1.0.0'}
do:
  - first: {call: work}
  - second: {call: work}
`

// functionAttacker is an attacker beside functions.
type functionAttacker struct{ what, flood string }

func (a functionAttacker) name() string { return a.what }

// functionAttackers are the resources that clients of one tenant's app saturate beside another
// tenant's.
var functionAttackers = []functionAttacker{
	{"the gateway", "small"},
	{"request bodies", "bodies"},
	{"WebSockets", "sockets"},
	{"the processors", "spin"},
	{"memory bandwidth", "memory"},
	{"the log", "log"},
}

// functionVictims are the operations that a client of the victim's app repeats.
var functionVictims = []struct {
	what string
	open func(ctx context.Context, addr string) (request func(context.Context) error, closing func(), err error)
}{
	{"request to a function", openRequests("/victim/work")},
	{"message on a WebSocket and its answer", openSocket},
	{"workflow of two steps", openRequests("/victim/flow")},
}

// functions measures functions, WebSockets and workflows of one tenant beside clients of another
// tenant on the same node.
func (b *bench) functions(ctx context.Context) (err error) {
	chosen, err := chosenOf(b.beside, functionAttackers, functionAttacker.name)
	if err != nil || len(chosen) == 0 {
		return err
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	r, err := rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, "functions"), Loopback: true,
		Nodes: []rig.Spec{{Name: "harbour", Devices: "none", Args: []string{"--http", addr, "--grpc", "none"}}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, tenant := range []string{"victim", "attacker"} {
		if err := b.deploy(ctx, r.Node("harbour"), tenant); err != nil {
			return err
		}
	}
	for _, a := range chosen {
		if err := b.besideFlood(ctx, r.Node("harbour").PID(), addr, a.what, a.flood); err != nil {
			return fmt.Errorf("beside an attack on %s: %w", a.what, err)
		}
	}
	return nil
}

// chosenOf returns the attackers whose names match -beside.
func chosenOf[T any](beside string, all []T, name func(T) string) ([]T, error) {
	match, err := regexp.Compile(beside)
	if err != nil {
		return nil, fmt.Errorf("-beside: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(a T) bool { return !match.MatchString(name(a)) }), nil
}

// freeAddr returns a loopback address on which no process listens.
func freeAddr(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// deploy deploys the tenant's app.
func (b *bench) deploy(ctx context.Context, node *rig.Node, tenant string) error {
	dir := filepath.Join(b.Dir, "app-"+tenant)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", filepath.Join(dir, "guest.wasm"), "./bench/attack/testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest: %w: %s", err, out)
	}
	for name, text := range map[string]string{"app.yaml": fmt.Sprintf(appOf, tenant), "flow.yaml": flowOf} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	_, err := node.Output(ctx, "deploy", dir)
	return err
}

// besideFlood measures all victims alone and beside one attacker, in turn.
func (b *bench) besideFlood(ctx context.Context, node int, addr, what, flood string) error {
	type sample struct{ beside, alone [2][]float64 } // p50 and p99
	samples := make([]sample, len(functionVictims))
	for range b.Rounds(5, 2) {
		for _, attacked := range []bool{false, true} {
			stop := func() {}
			if attacked {
				var err error
				if stop, err = startFlood(ctx, addr, flood); err != nil {
					return err
				}
			}
			before := readWaits(node)
			err := b.eachVictim(ctx, addr, func(i int, latencies []float64) {
				if b.beside != "" {
					after := readWaits(node)
					printWaits(os.Stderr, fmt.Sprintf("%s, attacked %t, p50 %.0f us, p99 %.0f us", functionVictims[i].what, attacked, quantile(latencies, 0.5), quantile(latencies, 0.99)), before, after, len(latencies))
					before = after
				}
				to := &samples[i].alone
				if attacked {
					to = &samples[i].beside
				}
				to[0], to[1] = append(to[0], quantile(latencies, 0.5)), append(to[1], quantile(latencies, 0.99))
			})
			stop()
			if err != nil {
				return err
			}
		}
	}
	for i, v := range functionVictims {
		for q, name := range []string{"p50", "p99"} {
			b.Row(paired.NewRow(v.what+", "+name+", beside an attack on "+what, "us", "alone", samples[i].beside[q], samples[i].alone[q], paired.Goal{MaxRatio: 2.2}))
		}
	}
	return nil
}

// eachVictim runs each victim for a while and passes its latencies in microseconds to measured.
func (b *bench) eachVictim(ctx context.Context, addr string, measured func(i int, latencies []float64)) error {
	for i, v := range functionVictims {
		request, closing, err := v.open(ctx, addr)
		if err != nil {
			return err
		}
		var latencies []float64
		for end := time.Now().Add(b.Turn(4*time.Second, time.Second)); time.Now().Before(end); {
			began := time.Now()
			if err := request(ctx); err != nil {
				closing()
				return fmt.Errorf("%s: %w", v.what, err)
			}
			latencies = append(latencies, float64(time.Since(began).Nanoseconds())/1000)
		}
		closing()
		measured(i, latencies)
	}
	return nil
}

// openRequests opens a client that posts to a path.
func openRequests(path string) func(context.Context, string) (func(context.Context) error, func(), error) {
	return func(_ context.Context, addr string) (func(context.Context) error, func(), error) {
		transport := &http.Transport{}
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		return func(ctx context.Context) error {
			status, err := post(ctx, client, "http://"+addr+path, []byte("{}"))
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("the answer has the status %d", status)
			}
			return err
		}, transport.CloseIdleConnections, nil
	}
}

func post(ctx context.Context, client *http.Client, url string, body []byte) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// openSocket opens a WebSocket of the victim.
func openSocket(ctx context.Context, addr string) (request func(context.Context) error, closing func(), err error) {
	conn, _, err := websocket.Dial(ctx, "ws://"+addr+"/victim/socket", nil) //nolint:bodyclose // it has none
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error {
		if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
			return err
		}
		_, _, err := conn.Read(ctx)
		return err
	}, func() { _ = conn.CloseNow() }, nil // the connection is not used any more
}

// floodVariable holds the kind of flood of a measurement's process, floodAddr the address that it
// floods.
const (
	floodVariable = "OUTBOARD_BENCH_FLOOD"
	floodAddr     = "OUTBOARD_BENCH_FLOOD_ADDR"
)

// startFlood starts a process that floods the attacker's app, and waits for its first answer.
func startFlood(ctx context.Context, addr, flood string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), floodVariable+"="+flood, floodAddr+"="+addr)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true} // so it has a group of the scheduler
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	if !bufio.NewScanner(out).Scan() {
		stop()
		return nil, fmt.Errorf("the flood %q ended", flood)
	}
	return stop, nil
}

// runFlood floods the attacker's app until it is killed. It uses processors only when no other
// process wants them: clients run elsewhere, and only the load that they cause on the node is
// measured.
func runFlood(flood, addr string) int {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19) // without it the flood is larger
	// Priorities count within a session alone where the kernel groups threads by it (sched(7)).
	_ = os.WriteFile("/proc/self/autogroup", []byte("19"), 0) // some kernels have none
	var first sync.Once
	ready := func() { first.Do(func() { fmt.Fprintln(os.Stdout, "ready") }) }
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if flood == "sockets" {
				floodSocket(addr, ready)
			} else {
				floodRequests(addr, flood, ready)
			}
		})
	}
	all.Wait()
	return 1
}

// floodRequests posts without a pause. Refusals count as answers.
func floodRequests(addr, flood string, ready func()) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	body := []byte("{}")
	if flood == "bodies" {
		body = bytes.Repeat([]byte("x"), 8<<20)
	}
	for {
		_, err := post(context.Background(), client, "http://"+addr+"/attacker/"+strings.TrimSpace(flood), body)
		if err == nil {
			ready()
		}
	}
}

// floodSocket sends messages without reading the answers, on one connection after another.
func floodSocket(addr string, ready func()) {
	ctx := context.Background()
	for {
		conn, _, err := websocket.Dial(ctx, "ws://"+addr+"/attacker/socket", nil) //nolint:bodyclose // it has none
		if err != nil {
			continue
		}
		for err == nil {
			err = conn.Write(ctx, websocket.MessageText, bytes.Repeat([]byte("x"), 64<<10))
			ready()
		}
		_ = conn.CloseNow() // the gateway has closed it
	}
}
