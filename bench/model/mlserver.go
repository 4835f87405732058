package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// mlserverWheels are the Python packages of the peer for tensors.
//
//nolint:gochecknoglobals // a table
var mlserverWheels = []string{"mlserver==1.7.1", "onnxruntime==1.32.0"}

//go:embed mlserver.py
var mlserverModel []byte

// mlserver compares the same ONNX file behind this program and behind MLServer, both over gRPC, with
// batches of at most 64 requests and one thread for the network.
func mlserver(ctx context.Context, b *bench) error {
	file, err := b.mlpFile(1)
	if err != nil {
		return err
	}
	p, err := b.start(ctx, 1, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.push(ctx, "mlp", file, oneThread("batching: {max: 64}", "queue: {size: 4096}")); err != nil {
		return err
	}
	peer, err := startMLServer(ctx, b, file)
	if err != nil {
		b.note("The rows beside MLServer are missing: " + err.Error())
		return nil
	}
	defer peer.stop()
	input := mlpInput(1)
	ours, err := dialOIP(ctx, p.grpcs[0], "mlp", input)
	if err != nil {
		return err
	}
	defer ours.Close()
	theirs, err := awaitOIP(ctx, peer.url, "mlp", func() (*oipCaller, error) { return dialOIP(ctx, peer.url, "mlp", input) })
	if err != nil {
		return err
	}
	defer theirs.Close()
	for _, clients := range []int{1, 32} {
		if err := besideMLServer(ctx, b, clients, peer.name, ours, theirs); err != nil {
			return err
		}
	}
	return nil
}

// besideMLServer measures the rate and the latency for a number of clients.
func besideMLServer(ctx context.Context, b *bench, clients int, name string, callers ...*oipCaller) error {
	rates, times := make([][]float64, len(callers)), make([][]float64, len(callers))
	for round := range b.Rounds(7, 2) + 1 {
		for i, c := range callers {
			l := closedLoop(ctx, clients, b.Turn(1500*time.Millisecond, 500*time.Millisecond), c.infer)
			if err := errors.Join(l.failed...); err != nil {
				return err
			}
			if round > 0 {
				rates[i], times[i] = append(rates[i], l.perSec), append(times[i], percentile99(l.times))
			}
		}
	}
	what := fmt.Sprintf("MLP, %d clients over gRPC beside MLServer", clients)
	b.Row(paired.NewRow(what, "requests/s", name, rates[0], rates[1], paired.Goal{MinRatio: 1}))
	b.Row(paired.NewRow(what+": p99", "ms", name, times[0], times[1], paired.Goal{MaxRatio: 1}))
	return nil
}

// startMLServer installs MLServer from wheels and starts it with an ONNX file as the model "mlp". The
// peer's url is the address of its gRPC.
func startMLServer(ctx context.Context, b *bench, file string) (*peer, error) {
	venv, err := install(ctx, b, "mlserver", mlserverWheels...)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.Dir, "mlserver-models")
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	settings := map[string]any{
		"host": "127.0.0.1", "http_port": ports[0], "grpc_port": ports[1], "metrics_port": ports[2], "parallel_workers": 0, "debug": false,
	}
	model := map[string]any{
		"name": "mlp", "implementation": "network.Network", "parameters": map[string]any{"uri": file},
		"max_batch_size": 64, "max_batch_time": 0.001,
	}
	if err := writeSettings(dir, settings, model); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(venv, "bin", "mlserver"), "start", dir) //nolint:gosec // of this bench's own environment
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONPATH="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return &peer{name: "MLServer (" + mlserverWheels[0] + ")", url: fmt.Sprintf("127.0.0.1:%d", ports[1]), cmd: cmd}, cmd.Start()
}

func writeSettings(dir string, settings, model any) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, value := range map[string]any{"settings.json": settings, "model-settings.json": model} {
		text, err := json.Marshal(value)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "network.py"), mlserverModel, 0o600)
}

// freePorts returns n ports of the loopback device on which no process listens.
func freePorts(ctx context.Context, n int) ([]int, error) {
	if n == 0 {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close() // after the other ports are chosen
	ports, err := freePorts(ctx, n-1)
	return append(ports, l.Addr().(*net.TCPAddr).Port), err //nolint:errcheck,forcetypeassert // of a TCP listener
}

// awaitOIP connects to a server and waits until it answers a request, for at most a minute.
func awaitOIP(ctx context.Context, addr, name string, dial func() (*oipCaller, error)) (*oipCaller, error) {
	for last := time.Now().Add(time.Minute); ; {
		c, err := dial()
		if err == nil {
			if err = c.infer(ctx); err == nil {
				return c, nil
			}
			_ = c.Close()
		}
		if ctx.Err() != nil || time.Now().After(last) {
			return nil, fmt.Errorf("%s at %s does not answer: %w", name, addr, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
