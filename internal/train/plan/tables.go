package plan

// tables has the sums of a job for one division of its batch, so that the times of a stage are
// differences of two entries.
type tables struct {
	job       *Job
	div       division
	recompute bool
	// forward, backward, parameters and stored are sums over the layers before an index: the
	// times of one micro-batch at speed 1, bytes, and bytes of one micro-batch.
	forward, backward, parameters, stored []float64
}

func newTables(j *Job, d division, recompute bool) *tables {
	n := len(j.Layers) + 1
	t := &tables{
		job: j, div: d, recompute: recompute,
		forward: make([]float64, n), backward: make([]float64, n), parameters: make([]float64, n), stored: make([]float64, n),
	}
	micro := float64(d.micro)
	for i, l := range j.Layers {
		again := 0.0
		if recompute {
			again = micro*l.Forward + l.Launch
		}
		t.forward[i+1] = t.forward[i] + micro*l.Forward + l.Launch
		t.backward[i+1] = t.backward[i] + micro*l.Backward + l.Launch + again
		t.parameters[i+1] = t.parameters[i] + l.Parameters
		t.stored[i+1] = t.stored[i] + micro*l.Stored
	}
	return t
}

// input is the bytes of one micro-batch that the layer reads: 0 for the first, whose data come
// from elsewhere.
func (t *tables) input(layer int) float64 {
	if layer == 0 {
		return 0
	}
	return float64(t.div.micro) * t.job.Layers[layer-1].Output
}

// memory is what the stage of layers first to end-1 holds at most; after is the number of stages
// from it to the end, itself included.
func (t *tables) memory(first, end, after int) float64 {
	held := t.div.steps
	if t.job.Schedule == OneForwardOneBackward {
		held = min(held, after)
	}
	stored := t.stored[end] - t.stored[first]
	activations := float64(held) * stored
	if t.recompute {
		activations = float64(held)*t.input(first) + stored
	}
	return (t.parameters[end]-t.parameters[first])*(1+t.job.Optimizer) + activations
}

// sync is the time in which the replicas of a stage sum their gradients.
func (t *tables) sync(first, end, device int) float64 {
	n := float64(t.div.replicas)
	if n == 1 {
		return 0
	}
	d := t.job.Devices[device]
	transfer := (t.parameters[end] - t.parameters[first]) / d.Bandwidth
	switch t.job.Reduction {
	case Store:
		return 2*transfer + 2*d.Latency
	case PlainStore:
		return (3-2/n)*transfer + 3*d.Latency
	default:
		return 2 * (n - 1) * (transfer/n + d.Latency)
	}
}

// send is the time of one micro-batch's output, or gradient, between the device before the layer
// and the one that has it.
func (t *tables) send(layer, from, to int) float64 {
	a, b := t.job.Devices[from], t.job.Devices[to]
	return t.input(layer)/min(a.Bandwidth, b.Bandwidth) + max(a.Latency, b.Latency)
}

// A suffix is the stages from the layer at to the last, as far as the time of a step depends on
// them. All its fields but at and device only grow when a stage is put before it.
type suffix struct {
	at, device int // the first layer, and the device of its stage
	stages     int
	// forwardSum and forwardMax are the sum and the longest of the forward passes and sends of
	// one micro-batch, backwardSum and backwardMax those of the backward passes.
	forwardSum, forwardMax, backwardSum, backwardMax float64
	// end is the latest end of a stage's backward pass and reduction, from the beginning of the
	// last stage's backward pass.
	end   float64
	price float64
}

// prepend returns s with the stage of layers first to s.at-1 on device before it.
func (t *tables) prepend(s suffix, first, device int) suffix {
	speed := t.job.Devices[device].Speed
	forward := (t.forward[s.at] - t.forward[first]) / speed
	backward := (t.backward[s.at] - t.backward[first]) / speed
	n := suffix{
		at: first, device: device, stages: s.stages + 1,
		forwardSum: s.forwardSum + forward, forwardMax: max(s.forwardMax, forward),
		backwardSum: s.backwardSum + backward, backwardMax: max(s.backwardMax, backward),
		price: s.price + t.job.Devices[device].Price,
	}
	if s.device >= 0 {
		send := t.send(s.at, device, s.device)
		n.forwardSum += send
		n.forwardMax = max(n.forwardMax, send)
		n.backwardSum += send
		n.backwardMax = max(n.backwardMax, send)
	}
	n.end = max(s.end, n.backwardSum+t.more()*n.backwardMax+t.sync(first, s.at, device))
	return n
}

// more is the number of micro-batches after the first.
func (t *tables) more() float64 { return float64(t.div.steps - 1) }

func (t *tables) forwardTime(s suffix) float64 { return s.forwardSum + t.more()*s.forwardMax }
func (t *tables) time(s suffix) float64        { return t.forwardTime(s) + s.end }
func (t *tables) cost(s suffix) float64 {
	return t.time(s) * s.price * float64(t.div.replicas)
}
