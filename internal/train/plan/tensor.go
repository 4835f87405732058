package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outboard-run/outboard/internal/train/shard"
)

// memoryWeights are the weights of memory by which the operators of layers are divided: a plan with
// weight 1 may take a tenth of a step longer for each tenth of a device's memory that it saves. All
// layers of a plan are divided with the same weight, and the search tries all of them.
var memoryWeights = []int{0, 1, 100}

// maxTensor bounds the devices of a stage's replica.
const maxTensor = 1 << 12

// MaxOperators bounds the operators of all layers of a job.
const MaxOperators = 10_000

// A LayerSharding says how the operators of a layer are divided over the devices of a stage.
type LayerSharding struct {
	Layer string `json:"layer"`
	// Operators have the strategies in the order of the layer's operators.
	Operators []OperatorSharding `json:"operators"`
}

// An OperatorSharding is the strategy of an operator: see shard.Strategy.
type OperatorSharding struct {
	Name     string `json:"name"`
	Strategy string `json:"strategy"`
}

// devices returns the number of devices of one stage.
func (d division) devices() int { return d.replicas * d.tensor }

// link returns the bandwidth and latency between the devices of a group whose members are
// neighbours.
func (d *Device) link(members int) (bandwidth, latency float64) {
	if members <= d.Node {
		return d.NodeBandwidth, d.NodeLatency
	}
	return d.shared(1), d.Latency // One ring connects the nodes.
}

// ring returns the bandwidth and latency between the replicas of a stage, each of which has tensor
// devices that are neighbours.
func (d *Device) ring(replicas, tensor int) (bandwidth, latency float64) {
	if replicas*tensor <= d.Node {
		return d.NodeBandwidth, d.NodeLatency
	}
	return d.shared(tensor), d.Latency
}

// shared returns the bandwidth of each device out of its node, when that many devices of a node
// send at once: they share the bandwidth of all its devices.
func (d *Device) shared(active int) float64 {
	if d.Node <= active {
		return d.Bandwidth
	}
	return min(max(d.Bandwidth, d.NodeBandwidth), d.Bandwidth*float64(d.Node)/float64(active))
}

// A dividedLayer holds the times and sizes of a layer on the devices of one stage: seconds of a
// micro-batch, at speed 1 except for sends, and bytes of a device.
type dividedLayer struct {
	forward, backward, sentForward, sentBackward, parameters, stored, reduction float64
	sharding                                                                    []LayerSharding
}

// dividedKey names a layer that is divided in one way.
type dividedKey struct {
	layer  int // the first layer with the same operators
	device int
	division
}

// divided returns the times and sizes of a layer with a division of the batch, on a kind of device.
func (j *Job) divided(layer int, d division, device int) *dividedLayer {
	if d.tensor == 1 {
		whole := j.Layers[layer].whole(d.micro)
		return &whole
	}
	if j.divisionsOfLayers == nil {
		j.divisionsOfLayers = make(map[dividedKey]*dividedLayer)
	}
	key := dividedKey{j.firstLike(layer), device, division{1, d.micro, d.steps, d.tensor, d.weight}}
	known := j.divisionsOfLayers[key]
	if known == nil {
		known = j.divide(layer, d, device)
		j.divisionsOfLayers[key] = known
	}
	return known
}

// firstLike returns the index of the first layer that is divided like another one.
func (j *Job) firstLike(layer int) int {
	if j.alike == nil {
		j.alike = make([]int, len(j.Layers))
		first := make(map[string]int)
		for i, l := range j.Layers {
			l.Name = ""
			for k := range l.Parts {
				l.Parts = slices.Clone(l.Parts)
				l.Parts[k].Name = ""
			}
			key := fmt.Sprintf("%v %v", l, j.inputShape(i))
			if _, ok := first[key]; !ok {
				first[key] = i
			}
			j.alike[i] = first[key]
		}
	}
	return j.alike[layer]
}

// whole returns the times and sizes of a layer that is not divided.
func (l *Layer) whole(micro int) dividedLayer {
	n := float64(micro)
	return dividedLayer{
		forward: n*l.Forward + l.Launch, backward: n*l.Backward + l.Launch, parameters: l.Parameters, stored: n * l.Stored,
	}
}

// shardingOf returns how the operators of a layer are divided.
func (j *Job) shardingOf(layer int, d division, device int) []LayerSharding {
	all := slices.Clone(j.divided(layer, d, device).sharding)
	if len(all) == 1 && len(j.Layers[layer].Parts) == 0 {
		all[0].Layer = j.Layers[layer].Name // It may be that of another layer with the same operators.
	}
	return all
}

// divide plans the shardings of a layer, part by part if it was merged from several layers.
func (j *Job) divide(layer int, d division, device int) *dividedLayer {
	l := &j.Layers[layer]
	parts := l.Parts
	if len(parts) == 0 {
		parts = []Layer{*l}
	}
	var sum dividedLayer
	input := j.inputShape(layer)
	for i := range parts {
		part := j.dividePart(&parts[i], input, d, device)
		sum.forward += part.forward
		sum.backward += part.backward
		sum.sentForward += part.sentForward
		sum.sentBackward += part.sentBackward
		sum.parameters += part.parameters
		sum.stored += part.stored
		sum.reduction += part.reduction
		sum.sharding = append(sum.sharding, part.sharding...)
		input = parts[i].shape()
	}
	return &sum
}

// shape returns the shape of a layer's output, nil if it is not known.
func (l *Layer) shape() []int {
	if len(l.Parts) > 0 {
		return l.Parts[len(l.Parts)-1].shape()
	}
	if len(l.Operators) == 0 {
		return nil
	}
	return l.Operators[len(l.Operators)-1].Output
}

// inputShape returns the shape of a layer's input, nil if it is not known.
func (j *Job) inputShape(layer int) []int {
	if layer == 0 {
		return nil
	}
	return j.Layers[layer-1].shape()
}

// dividePart plans the shardings of a layer that was not merged. If it has no operators, or too
// wide a graph of them, each device computes all of it.
func (j *Job) dividePart(l *Layer, input []int, d division, device int) dividedLayer {
	kind := &j.Devices[device]
	bandwidth, latency := kind.link(d.tensor)
	if len(l.Operators) == 0 {
		return l.replicated(d, bandwidth)
	}
	g := j.graph(l, input, d, kind)
	p, err := (shard.Mesh{{Size: d.tensor, Bandwidth: bandwidth, Latency: latency}}).Best(g)
	if err != nil {
		return l.replicated(d, bandwidth)
	}
	result := dividedLayer{
		forward: p.Forward*kind.Speed + l.Launch, backward: p.Backward*kind.Speed + l.Launch,
		sentForward: p.SentForward, sentBackward: p.SentBackward,
		parameters: p.Parameters, stored: p.Stored, reduction: p.Reduction,
	}
	s := LayerSharding{Layer: l.Name}
	for i, o := range l.Operators {
		s.Operators = append(s.Operators, OperatorSharding{o.Name, p.Choices[i][0]})
	}
	result.sharding = []LayerSharding{s}
	return result
}

// replicated returns the times and sizes of a layer that each device of a stage computes as a
// whole. Each device has a summand of the gradients, as for all replicated parameters: see package
// shard.
func (l *Layer) replicated(d division, bandwidth float64) dividedLayer {
	whole, n := l.whole(d.micro), float64(d.tensor)
	whole.reduction = 2 * (n - 1) / n * l.Parameters / bandwidth
	return whole
}

// graph returns the operators of a layer on a kind of device.
func (j *Job) graph(l *Layer, input []int, d division, kind *Device) *shard.Graph {
	g := &shard.Graph{
		Input: input, Samples: d.micro, Element: j.Element, MicroBatches: d.steps, Optimizer: j.Optimizer, Held: 1,
		Weight: float64(d.weight) * (l.Forward + l.Backward) * float64(d.micro*d.steps) / kind.Speed / kind.Memory,
	}
	for _, o := range l.Operators {
		o.Forward /= kind.Speed
		o.Backward /= kind.Speed
		g.Operators = append(g.Operators, o)
	}
	return g
}

// checkTensor returns an error if the operators of layers can't be divided.
func (j *Job) checkTensor() error {
	for _, n := range j.Tensor {
		if n < 1 || n > maxTensor {
			return fmt.Errorf("tensor: %d devices, want 1 to %d", n, maxTensor)
		}
	}
	if !(j.Element >= 0 && j.Element <= 1024) {
		return fmt.Errorf("element: %v bytes, want 0 to 1024", j.Element)
	}
	operators := 0
	for i := range j.Layers {
		l := &j.Layers[i]
		if operators += len(l.Operators); operators > MaxOperators {
			return fmt.Errorf("layers: more than %d operators", MaxOperators)
		}
		if len(l.Operators) == 0 {
			continue
		}
		if err := shard.Check(l.Operators); err != nil {
			return fmt.Errorf("layers[%d] (%s): %w", i, l.Name, err)
		}
		l.sumOperators(j.Element)
	}
	return nil
}

// sumOperators sets the times and sizes of a layer that has none to those of its operators.
func (l *Layer) sumOperators(element float64) {
	if l.Forward != 0 || l.Backward != 0 || l.Parameters != 0 || l.Stored != 0 || l.Output != 0 {
		return
	}
	for _, o := range l.Operators {
		l.Forward += o.Forward
		l.Backward += o.Backward
		l.Parameters += o.Parameters
		l.Stored += o.Stored
	}
	l.Output = element
	for _, n := range l.shape() {
		l.Output *= float64(n)
	}
}

// checkNode returns an error if the links within a node are malformed.
func (d *Device) checkNode() error {
	if d.Node < 0 || d.Node > maxTensor || !(d.NodeLatency >= 0 && d.NodeLatency <= maxNumber) {
		return errors.New("node must be from 0 to 4096 devices, nodeLatency 0 or more")
	}
	if d.Node > 1 && !(d.NodeBandwidth > 0 && d.NodeBandwidth <= maxNumber) {
		return fmt.Errorf("nodeBandwidth is %v, want more than 0 with %d devices a node", d.NodeBandwidth, d.Node)
	}
	return nil
}
