package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// The paths of calls through the fabric that are compared with Envoy, each with two policies.
const (
	throughNode  = "through the node"
	betweenNodes = "between nodes with TLS"
	byPlainPort  = "by the plain port"
)

// twoPolicies are the same as Envoy's: an access list and a token bucket.
const twoPolicies = `
policies:
  - name: who
    access: {default: deny, rules: [{allow: {services: ["grpc.testing.*"]}}]}
  - name: how-often
    rate: {rate: 1000000/s, burst: 1000000}
`

// A passage is one path through the fabric, and the goal of its comparison with Envoy.
type passage struct {
	name string
	goal paired.Goal
}

func passages() []passage {
	return []passage{
		{throughNode, paired.Goal{MaxRatio: 0.667}},
		{betweenNodes, paired.Goal{MaxRatio: 1}},
		{byPlainPort, paired.Goal{MaxRatio: 1}},
	}
}

// peerTopologies starts the topologies of the fabric's paths, of grpc-go and of Envoy. If Envoy
// can't be installed, missing is the reason, and the paths are compared with grpc-go alone.
func (f *processGroup) peerTopologies(ctx context.Context) (all []*topology, missing error, err error) {
	for _, p := range passages() {
		w, err := f.passageTopology(ctx, p.name)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.name, err)
		}
		all = append(all, w)
	}
	w, err := f.echoTopology(ctx, plain, "peer-grpc", stackGRPC, "")
	if err != nil {
		return nil, nil, err
	}
	all = append(all, w)
	binary, missing := f.bench.installEnvoy(ctx)
	if missing != nil {
		return all, missing, nil
	}
	f.bench.envoy = binary
	w, err = f.echoTopology(ctx, enveloped, "peer-envoy", stackGRPC, roleEnvoy)
	return append(all, w), nil, err
}

// passageTopology starts one path through the fabric: a pool of its own, a server and a client.
func (f *processGroup) passageTopology(ctx context.Context, name string) (*topology, error) {
	dir, err := os.MkdirTemp(f.bench.Dir, "p")
	if err != nil {
		return nil, err
	}
	w, file := &topology{name: name}, filepath.Base(dir)
	node := "node:" + filepath.Join(dir, "a.sock")
	s := spec{Role: roleNode, Name: file, Listen: node, Policies: twoPolicies}
	from, stack := node, stackFabric
	if name == betweenNodes {
		from = "node:" + filepath.Join(dir, "b.sock")
		s.Others = []string{from}
	}
	if err := w.add(ctx, f, s); err != nil {
		return nil, err
	}
	if name == byPlainPort {
		stack = stackGRPC
		if err := w.others[0].do("plain", nil, &from); err != nil {
			return nil, err
		}
	}
	if err := w.add(ctx, f, spec{Role: roleServer, Name: file + "-server", Stack: stackFabric, App: "echo", Listen: node}); err != nil {
		return nil, err
	}
	if err := w.addClient(ctx, f, spec{Role: roleClient, Name: file + "-client", Stack: stack, Targets: map[string][]string{"": {from}}}); err != nil {
		return nil, err
	}
	return w, w.known(ctx, "echo")
}

// A cell is one load of the table, and the number of messages of each of its calls.
type cell struct {
	title    string
	load     load
	messages float64
}

// maxFlight bounds the bytes of a cell that are in flight at once, in each direction: every process
// on the path may hold them.
const maxFlight = 128 << 20

func unaryCells(seconds float64) (cells []cell) {
	for _, size := range []int{0, 1 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		for _, flight := range []int{1, 8, 64} {
			if size*flight <= maxFlight {
				l := load{Call: "echo", Size: size, InFlight: flight, Seconds: seconds}
				cells = append(cells, cell{fmt.Sprintf("unary %s, %d in flight", sizeName(size), flight), l, 1})
			}
		}
	}
	return cells
}

func streamCells(seconds float64) (cells []cell) {
	for _, kind := range []struct {
		call, title string
		messages    float64
	}{{"upload", "client streaming", streamMessages}, {"download", "server streaming", streamMessages}, {"pingpong", "ping-pong", 1}} {
		for _, shape := range []struct{ size, flight int }{{100, 1}, {100, 8}, {100, 64}, {16 << 10, 1}} {
			l := load{Call: kind.call, Size: shape.size, InFlight: shape.flight, Seconds: seconds}
			cells = append(cells, cell{fmt.Sprintf("%s %s, %d at once", kind.title, sizeName(shape.size), shape.flight), l, kind.messages})
		}
	}
	return cells
}

// chosen returns the cells that the command line names, all by default.
func (b *bench) chosen(cells []cell) []cell {
	return slices.DeleteFunc(cells, func(c cell) bool { return !strings.Contains(c.title, b.cell) })
}

func sizeName(size int) string {
	switch {
	case size >= 1<<20 && size%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", size>>20)
	case size >= 1<<10 && size%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d B", size)
}

// peers compares the fabric's paths with Envoy and grpc-go.
func (b *bench) peers(ctx context.Context, cells func(seconds float64) []cell) error {
	return b.withProcesses(func(f *processGroup) error {
		all, missing, err := f.peerTopologies(ctx)
		if err != nil {
			return err
		}
		for _, c := range b.chosen(cells(b.Turn(400*time.Millisecond, 100*time.Millisecond).Seconds())) {
			measured, err := turns(ctx, b.Rounds(3, 1), c.load, all...)
			if err != nil {
				return fmt.Errorf("%s: %w", c.title, err)
			}
			b.peerRows(c, measured, missing)
		}
		return nil
	})
}

// transports compares the fabric's own protocol with grpc-go's HTTP/2, both over TCP with TLS from
// program to program: nodes are connected in the same way.
func (b *bench) transports(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		topologies, err := f.tlsTopologies(ctx)
		if err != nil {
			return err
		}
		seconds := b.Turn(400*time.Millisecond, 100*time.Millisecond).Seconds()
		for _, c := range b.chosen(append(unaryCells(seconds), streamCells(seconds)...)) {
			measured, err := turns(ctx, b.Rounds(3, 1), c.load, topologies...)
			if err != nil {
				return fmt.Errorf("%s: %w", c.title, err)
			}
			title := c.title + ", TCP with TLS"
			b.compare(measured,
				comparison{title, "us", secure, securePlain, c.each(perCall), paired.Goal{MaxRatio: 1}},
				comparison{title + ": CPU per message", "us", secure, securePlain, c.each(cpuEach), paired.Goal{}},
				comparison{title + ": context switches per message", "", secure, securePlain, c.each(sleeps), paired.Goal{}})
		}
		return nil
	})
}

// each returns a function that divides a number of each call by its messages.
func (c cell) each(number func(result) float64) func(result) float64 {
	return func(r result) float64 { return number(r) / c.messages }
}

// peerRows adds the rows of a cell: the time of a message on each path, and the processor time,
// which other load on the machine changes little.
func (b *bench) peerRows(c cell, measured runs, missing error) {
	each, cpu := c.each(perCall), c.each(cpuEach)
	for _, p := range passages() {
		title := c.title + ", " + p.name
		if missing != nil {
			r := paired.NewRow(title, "us", enveloped, measured.of(p.name, each), nil, p.goal)
			r.Holds = false
			b.row(r.Because("Envoy could not be installed: " + missing.Error()))
		} else {
			b.row(paired.NewRow(title, "us", enveloped, measured.of(p.name, each), measured.of(enveloped, each), p.goal))
			b.row(paired.NewRow(title+": CPU per message", "us", enveloped, measured.of(p.name, cpu), measured.of(enveloped, cpu), paired.Goal{}))
		}
		b.row(paired.NewRow(title, "us", plain, measured.of(p.name, each), measured.of(plain, each), paired.Goal{}))
		b.row(paired.NewRow(title+": CPU per message", "us", plain, measured.of(p.name, cpu), measured.of(plain, cpu), paired.Goal{}))
	}
}

// sizes compares the times of neighbouring sizes, where copies, frames, blocks and windows change.
func (b *bench) sizes(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		for _, p := range passages() {
			w, err := f.passageTopology(ctx, p.name)
			if err != nil {
				return err
			}
			for _, edge := range []int{128, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20} {
				if err := b.step(ctx, w, edge); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// step adds the row of one edge: the time of calls of a size above the edge, compared with calls of
// a size below it.
func (b *bench) step(ctx context.Context, w *topology, edge int) error {
	below, above := edge-edge/20, edge+edge/20
	var shorter, longer []float64
	seconds := b.Turn(200*time.Millisecond, 50*time.Millisecond).Seconds()
	for range b.Rounds(5, 2) {
		for _, side := range []struct {
			size int
			to   *[]float64
		}{{below, &shorter}, {above, &longer}} {
			r, err := turns(ctx, 1, load{Call: "echo", Size: side.size, InFlight: 1, Seconds: seconds}, w)
			if err != nil {
				return err
			}
			*side.to = append(*side.to, r.of(w.name, p50)...)
		}
	}
	name := fmt.Sprintf("unary, from %d to %d bytes, %s", below, above, w.name)
	b.row(paired.NewRow(name, "us", fmt.Sprintf("%d bytes", below), longer, shorter, paired.Goal{MaxRatio: 1.5}))
	return nil
}
