// Package published has models and clusters of published systems as jobs for the planner, so that
// its plans can be compared with the published ones.
//
// Values that the papers do not state are assumed, the same for all plans: matrix products run at
// half of a device's peak, other operators at the bandwidth of its memory, and latencies are those
// below.
package published

import (
	"fmt"

	"github.com/outboard-run/outboard/internal/train/plan"
	"github.com/outboard-run/outboard/internal/train/shard"
)

// A Model is a GPT with parameters of 16 bits.
type Model struct {
	Name                         string
	Layers, Width, Heads, Length int
	// Batch is the samples of a step, Devices the number of devices it was trained on.
	Batch, Devices int
}

// vocabulary is the number of tokens of the models: that of GPT-2, rounded up.
const vocabulary = 51200

// A Cluster is a kind of device, and its operations and bytes of memory per second.
type Cluster struct {
	Name          string
	Device        plan.Device
	Peak, Streams float64
}

// Selene returns the cluster of Narayanan and others, "Efficient Large-Scale Language Model
// Training on GPU Clusters Using Megatron-LM", SC 2021, section 5: nodes of 8 A100 with 80 GB, 312
// Tflop/s of 16 bits each, linked by NVSwitch (300 GB/s each way); 8 HDR InfiniBand adapters of 200
// Gbit/s.
func Selene() Cluster {
	return Cluster{
		Name: "Megatron-LM's cluster (A100)", Peak: 312e12, Streams: 2.0e12,
		Device: plan.Device{
			Name: "A100", Speed: 1, Memory: 80e9, Bandwidth: 25e9, Latency: 10e-6, Price: 1, Node: 8, NodeBandwidth: 300e9, NodeLatency: 5e-6,
		},
	}
}

// P3 returns the cluster of Zheng and others, "Alpa", OSDI 2022, section 8: AWS p3.16xlarge, nodes
// of 8 V100 with 16 GB, 125 Tflop/s of 16 bits each, linked by NVLink (150 GB/s each way); 25
// Gbit/s between nodes.
func P3() Cluster {
	return Cluster{
		Name: "Alpa's cluster (V100)", Peak: 125e12, Streams: 0.9e12,
		Device: plan.Device{
			Name: "V100", Speed: 1, Memory: 16e9, Bandwidth: 25e9 / 8 / 8, Latency: 30e-6, Price: 1, Node: 8, NodeBandwidth: 150e9, NodeLatency: 5e-6,
		},
	}
}

// Megatron returns models of table 1 of the paper of Narayanan and others.
func Megatron() []Model {
	return []Model{
		{"GPT 7.5B", 36, 4096, 32, 2048, 512, 128},
		{"GPT 39.1B", 48, 8192, 64, 2048, 1536, 512},
		{"GPT 145.6B", 80, 12288, 96, 2048, 2304, 1536},
	}
}

// Alpa returns models of table 5 of the paper of Zheng and others.
func Alpa() []Model {
	return []Model{
		{"GPT 2.6B", 32, 2560, 32, 1024, 1024, 8},
		{"GPT 15B", 48, 5120, 40, 1024, 1024, 32},
		{"GPT 39B", 48, 8192, 64, 1024, 1024, 64},
	}
}

// halfPeak is the part of a device's peak at which matrix products run.
const halfPeak = 0.5

// Job returns a model on its number of devices of a cluster. Degrees of data and tensor parallelism
// are the powers of two that divide the batch and the heads.
func (c Cluster) Job(m Model) *plan.Job {
	device := c.Device
	device.Count = m.Devices
	j := &plan.Job{
		Devices: []plan.Device{device}, Batch: m.Batch, Element: 2, Optimizer: 7, Recompute: true, MicroBatches: []int{1, 2, 4, 8},
	}
	for n := 1; n <= m.Heads && m.Heads%n == 0; n *= 2 {
		j.Tensor = append(j.Tensor, n)
	}
	for n := 1; n <= m.Devices && m.Batch%n == 0; n *= 2 {
		j.Replicas = append(j.Replicas, n)
	}
	g := &gpt{Model: m, cluster: c}
	embed := g.operator("tokens", shard.Embedding, []int{m.Length, m.Width}, float64(vocabulary*m.Width), 0)
	embed.Rows = vocabulary
	j.Layers = append(j.Layers, plan.Layer{Name: "embedding", Operators: []shard.Operator{embed}})
	for i := 0; i < m.Layers; i += g.blocksOfLayer() {
		j.Layers = append(j.Layers, plan.Layer{Name: fmt.Sprint("block", i), Operators: g.blocks(g.blocksOfLayer())})
	}
	head := g.matrix("logits", m.Width, vocabulary)
	j.Layers = append(j.Layers, plan.Layer{Name: "head", Operators: []shard.Operator{g.norm("norm"), head}})
	return j
}

type gpt struct {
	Model

	cluster Cluster
}

// blocksOfLayer returns the number of blocks that form one layer of the job: the least with which
// it has no more layers than the planner cuts between.
func (g *gpt) blocksOfLayer() int {
	for n := 1; ; n++ {
		if g.Layers%n == 0 && g.Layers/n+2 <= plan.MaxLayers {
			return n
		}
	}
}

// operator returns an operator that takes the time of its operations and of reading and writing its
// output's bytes.
func (g *gpt) operator(name string, kind shard.Kind, output []int, parameters, operations float64) shard.Operator {
	elements := 1.0
	for _, n := range output {
		elements *= float64(n)
	}
	seconds := operations/(halfPeak*g.cluster.Peak) + 2*2*elements/g.cluster.Streams
	return shard.Operator{Name: name, Kind: kind, Output: output, Parameters: 2 * parameters, Forward: seconds, Backward: 2 * seconds}
}

func (g *gpt) matrix(name string, in, out int) shard.Operator {
	o := g.operator(name, shard.Linear, []int{g.Length, out}, float64(in)*float64(out+1), 2*float64(g.Length)*float64(in)*float64(out))
	o.Stored = 2 * float64(g.Length) * float64(in)
	return o
}

func (g *gpt) norm(name string) shard.Operator {
	o := g.operator(name, shard.Normalize, []int{g.Length, g.Width}, 2*float64(g.Width), 0)
	o.Stored = 2 * float64(g.Length) * float64(g.Width)
	return o
}

// blocks returns the operators of several blocks, each 24sh² + 4s²h operations for a sequence of s
// tokens and a width of h, and stored activations of sh(34 + 5as/h) bytes for a heads (Korthikanti
// and others, 2022, arXiv 2205.05198, without the masks of dropout).
func (g *gpt) blocks(n int) (all []shard.Operator) {
	s, h, before := float64(g.Length), float64(g.Width), shard.Input
	for i := range n {
		name := func(of string) string { return fmt.Sprintf("%d.%s", i, of) }
		first := g.norm(name("norm1"))
		first.Inputs = []string{before}
		attention := g.operator(name("attention"), shard.Attention, []int{g.Length, g.Width}, 0, 4*s*s*h)
		attention.Heads, attention.Stored = g.Heads, 6*s*h+5*float64(g.Heads)*s*s
		add := func(of string, inputs ...string) shard.Operator {
			o := g.operator(name(of), shard.Add, []int{g.Length, g.Width}, 0, 0)
			o.Inputs = inputs
			return o
		}
		gelu := g.operator(name("gelu"), shard.Elementwise, []int{g.Length, 4 * g.Width}, 0, 0)
		gelu.Stored = 8 * s * h
		all = append(all, first, g.matrix(name("qkv"), g.Width, 3*g.Width), attention, g.matrix(name("projection"), g.Width, g.Width),
			add("add1", before, name("projection")), g.norm(name("norm2")), g.matrix(name("up"), g.Width, 4*g.Width), gelu,
			g.matrix(name("down"), 4*g.Width, g.Width), add("add2", name("add1"), name("down")))
		before = name("add2")
	}
	return all
}
