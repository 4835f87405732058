// Command model measures the serving of models against direct calls of the same libraries, and
// beside llama-server and MLServer, and writes docs/bench/models.md and models.json.
//
// Nodes are separate `outboard up` processes on the loopback device. The direct calls run in this
// process, with the same engine and the same number of threads. Compared measurements take turns.
//
// BENCH_QUICK=1 keeps it near four minutes: few and short turns. A whole run takes about a quarter
// of an hour; -only SECTION measures a part, for example -only mlp or -only kill.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard/bench/paired"
)

func main() {
	b := &bench{}
	b.Flags()
	flag.StringVar(&b.binary, "outboard", "bin/outboard", "the program to measure")
	flag.StringVar(&b.python, "python", "python3", "a Python with pip, which installs the peer")
	os.Exit(paired.Main(b.run))
}

type bench struct {
	paired.Run
	binary, python string
}

func (b *bench) sections() []paired.Section {
	return []paired.Section{
		{Name: "encoder", Run: b.encoder},
		{Name: "mlp", Run: b.mlp},
		{Name: "mlserver", Run: func(ctx context.Context) error { return mlserver(ctx, b) }},
		{Name: "functions", Run: func(ctx context.Context) error { return functions(ctx, b) }},
		{Name: "link", Run: b.link},
		{Name: "overload", Run: b.overload},
		{Name: "textoverload", Run: b.textOverload},
		{Name: "rollout", Run: b.rollout},
		{Name: "token", Run: b.token},
		{Name: "llamaserver", Run: b.llamaServer},
		{Name: "prefix", Run: b.prefix},
		{Name: "replicas", Run: b.replicas},
		{Name: "cancel", Run: b.cancel},
		{Name: "reload", Run: b.reload},
		{Name: "kill", Run: b.kill},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	end, err := b.Begin(ctx, "models",
		"Nodes, clients and direct calls share the machine's cores. The encoder has the shape of MiniLM-L6 (6 layers, width 384) for "+
			"128 tokens; the text model has 82 M parameters in Q8_0. All weights are random.",
		"1,000 random JSON schemas are a test (internal/model/engine/llama).")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := b.Merge(); err != nil {
		return err
	}
	return b.Measure(ctx, b.sections())
}

// note adds a paragraph to the report.
func (b *bench) note(text string) { b.Report.Notes = append(b.Report.Notes, text) }
