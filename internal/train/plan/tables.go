package plan

// tables holds the sums of a job for one division of its batch, so that the times of a stage are
// differences of two entries.
type tables struct {
	job       *Job
	div       division
	recompute bool
	// on has the sums for each kind of device. Without tensor parallelism all kinds share them.
	on []*sums
}

// sums are sums over the layers before an index.
type sums struct {
	// forward and backward are the times of one micro-batch at speed 1, sentForward and
	// sentBackward the times in which a stage's devices exchange parts of tensors.
	forward, backward, sentForward, sentBackward []float64
	// parameters and stored are bytes of a device, stored for one micro-batch.
	parameters, stored []float64
	// reduction is the time in which a stage's devices sum the gradients of parameters that they
	// all have, once a step.
	reduction []float64
}

func newTables(j *Job, d division, recompute bool) *tables {
	t := &tables{job: j, div: d, recompute: recompute, on: make([]*sums, len(j.Devices))}
	for device := range t.on {
		if device > 0 && d.tensor == 1 {
			t.on[device] = t.on[0]
			continue
		}
		t.on[device] = t.newSums(device)
	}
	return t
}

func (t *tables) newSums(device int) *sums {
	n := len(t.job.Layers) + 1
	s := &sums{
		forward: make([]float64, n), backward: make([]float64, n), sentForward: make([]float64, n), sentBackward: make([]float64, n),
		parameters: make([]float64, n), stored: make([]float64, n), reduction: make([]float64, n),
	}
	for i := range t.job.Layers {
		l := t.job.divided(i, t.div, device)
		s.forward[i+1] = s.forward[i] + l.forward
		s.backward[i+1] = s.backward[i] + l.backward
		s.sentForward[i+1] = s.sentForward[i] + l.sentForward
		s.sentBackward[i+1] = s.sentBackward[i] + l.sentBackward
		if t.recompute {
			s.backward[i+1] += l.forward
			s.sentBackward[i+1] += l.sentForward
		}
		s.parameters[i+1] = s.parameters[i] + l.parameters
		s.stored[i+1] = s.stored[i] + l.stored
		s.reduction[i+1] = s.reduction[i] + l.reduction
	}
	return s
}

// forward returns the time of one micro-batch's forward pass through layers first to end-1 on a
// device.
func (t *tables) forward(first, end, device int) float64 {
	s := t.on[device]
	return (s.forward[end]-s.forward[first])/t.job.Devices[device].Speed + (s.sentForward[end] - s.sentForward[first])
}

// backward returns the time of the backward pass.
func (t *tables) backward(first, end, device int) float64 {
	s := t.on[device]
	return (s.backward[end]-s.backward[first])/t.job.Devices[device].Speed + (s.sentBackward[end] - s.sentBackward[first])
}

// input returns the bytes of one micro-batch that the layer reads: 0 for the first, whose data come
// from elsewhere.
func (t *tables) input(layer int) float64 {
	if layer == 0 {
		return 0
	}
	return float64(t.div.micro) * t.job.Layers[layer-1].Output
}

// memory returns the most bytes that a device of the stage of layers first to end-1 holds; after is
// the number of stages from it to the end, itself included.
func (t *tables) memory(first, end, after, device int) float64 {
	held := t.div.steps
	if t.job.Schedule == OneForwardOneBackward {
		held = min(held, after)
	}
	s := t.on[device]
	stored := s.stored[end] - s.stored[first]
	activations := float64(held) * stored
	if t.recompute {
		activations = float64(held)*t.input(first) + stored
	}
	return (s.parameters[end]-s.parameters[first])*(1+t.job.Optimizer) + activations
}

// storePieces and storePiece say in which pieces a part is uploaded to a store: of at most
// storePiece bytes, or as many as storePieces (internal/train/collective, storeAllReduce).
const (
	storePieces = 8
	storePiece  = 256 << 10
)

// sync returns the time in which a stage sums its gradients: over its replicas, and, for parameters
// that all devices of a replica have, over these devices.
func (t *tables) sync(first, end, device int) float64 {
	d, s := &t.job.Devices[device], t.on[device]
	inside := s.reduction[end] - s.reduction[first]
	if inside > 0 {
		_, latency := d.link(t.div.tensor)
		inside += 2 * float64(t.div.tensor-1) * latency
	}
	n := float64(t.div.replicas)
	if n == 1 {
		return inside
	}
	size := s.parameters[end] - s.parameters[first]
	transfer := size / d.Bandwidth
	switch t.job.Reduction {
	case Store:
		part := size / n
		first := min(part, max(part/storePieces, storePiece))
		return inside + 2*(size-part+first)/d.Bandwidth + 2*d.Latency
	case PlainStore:
		return inside + (3-2/n)*transfer + 3*d.Latency
	default:
		bandwidth, latency := d.ring(t.div.replicas, t.div.tensor)
		return inside + 2*(n-1)*(size/bandwidth/n+latency)
	}
}

// send returns the time of sending one micro-batch's output, or gradient, between the device before
// the layer and the layer's device. Each device of a stage sends its part to a device of the next
// stage.
func (t *tables) send(layer, from, to int) float64 {
	a, b := &t.job.Devices[from], &t.job.Devices[to]
	active := t.div.devices()
	return t.input(layer)/min(a.shared(active), b.shared(active)) + max(a.Latency, b.Latency)
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
	forward, backward := t.forward(first, s.at, device), t.backward(first, s.at, device)
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

// more returns the number of micro-batches after the first.
func (t *tables) more() float64 { return float64(t.div.steps - 1) }

func (t *tables) forwardTime(s suffix) float64 { return s.forwardSum + t.more()*s.forwardMax }
func (t *tables) time(s suffix) float64        { return t.forwardTime(s) + s.end }
func (t *tables) cost(s suffix) float64 {
	return t.time(s) * s.price * float64(t.div.devices())
}
