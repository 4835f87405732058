package cost

import "sync"

// laneBlock is the number of lanes that are evaluated together. The vectors of a block that a batch
// uses stay in the cache of a core.
const laneBlock = 64

// sinkSlot receives results that no point needs. Like slot 0, which is time 0, it is no point.
const sinkSlot = 1

type opKind uint8

const (
	opServe opKind = iota
	opRaise
	opClear
)

// op is one step of the evaluation, the same in all lanes.
type op struct {
	kind            opKind
	on, after, done int32
	cost, units     int64
}

// batchSize is the number of steps that the workers get at once.
const batchSize = 2048

// batch is a piece of the sequence of steps. Two of them alternate.
type batch struct {
	ops     []op
	slots   int
	pending sync.WaitGroup
	other   *batch
}

func newBatch() *batch {
	b := &batch{ops: make([]op, 0, batchSize)}
	b.other = &batch{ops: make([]op, 0, batchSize), other: b}
	return b
}

// next returns the other batch, empty, once all workers are done with it.
func (b *batch) next() *batch {
	b.other.pending.Wait()
	b.other.ops = b.other.ops[:0]
	return b.other
}

// waitIdle waits until no worker uses either batch.
func (b *batch) waitIdle() {
	b.pending.Wait()
	b.other.pending.Wait()
}

// worker evaluates all steps for some blocks of lanes.
type worker struct {
	blocks  []block
	first   int // lane
	batches chan *batch
	done    chan struct{}
}

// block is the state of laneBlock lanes.
type block struct {
	slots    []vector
	profiles []blockProfile
	// fast says that the processor evaluates several lanes at a time.
	fast bool
}

// blockProfile is a Profile for the lanes of a block. vector_amd64.s knows the order of its
// vectors.
type blockProfile struct {
	latency, perUnit, slowdown vector
	free                       int
	plain                      bool
}

func newWorker(blocks, first int) *worker {
	w := &worker{blocks: make([]block, blocks), first: first}
	for i := range w.blocks {
		w.blocks[i] = block{slots: make([]vector, 2), profiles: make([]blockProfile, 1), fast: hasKernels()}
	}
	return w
}

func (w *worker) start() {
	w.batches, w.done = make(chan *batch, 2), make(chan struct{})
	go func() {
		defer close(w.done)
		for b := range w.batches {
			w.run(b)
			b.pending.Done()
		}
	}()
}

func (w *worker) stop() {
	if w.batches != nil {
		close(w.batches)
		<-w.done
	}
}

// addProfile adds a resource. No batch may be under evaluation.
func (w *worker) addProfile(p *profile) {
	for i := range w.blocks {
		made := blockProfile{free: int(p.slot), plain: p.plain}
		for j := range laneBlock {
			// Lanes beyond the last one repeat it.
			lane := min(w.first+i*laneBlock+j, len(p.latency)-1)
			made.latency[j], made.perUnit[j], made.slowdown[j] = p.latency[lane], p.perUnit[lane], p.slowdown[lane]
		}
		w.blocks[i].profiles = append(w.blocks[i].profiles, made)
	}
}

func (w *worker) appendTimes(out []Time, slot int) []Time {
	for i := range w.blocks {
		if slot >= len(w.blocks[i].slots) {
			out = append(out, make([]Time, laneBlock)...)
			continue
		}
		for _, t := range w.blocks[i].slots[slot] {
			out = append(out, Time(t))
		}
	}
	return out
}

// time returns a slot's time in a lane of the worker.
func (w *worker) time(slot, lane int) Time {
	slots := w.blocks[lane/laneBlock].slots
	if slot >= len(slots) {
		return 0
	}
	return Time(slots[slot][lane%laneBlock])
}

func (w *worker) run(b *batch) {
	for i := range w.blocks {
		w.blocks[i].run(b)
	}
}

func (k *block) run(b *batch) {
	if n := b.slots - len(k.slots); n > 0 {
		k.slots = append(k.slots, make([]vector, n)...)
	}
	for i := range b.ops {
		o := &b.ops[i]
		done, after := &k.slots[o.done], &k.slots[o.after]
		switch o.kind {
		case opServe:
			p := &k.profiles[o.on]
			if k.fast {
				k.serveFast(&k.slots[p.free], after, done, p, o)
			} else {
				k.serveOne(&k.slots[p.free], after, done, p, o)
			}
		case opRaise:
			if k.fast {
				raiseFast(done, after)
			} else {
				raise(done, after)
			}
		case opClear:
			*done = vector{}
		}
	}
}
