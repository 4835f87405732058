package compute

import (
	"errors"
	"sync/atomic"
	"time"
)

// Limits of one holder.
const (
	maxBuffers  = 4096
	maxPrograms = 256
)

// ErrGivenUp is the error of a holder whose earlier commands did not end in time: the state of its
// objects is unknown.
var ErrGivenUp = errors.New("earlier commands did not end in time: import the device again")

// Holder is one user of a Device, with buffers and programs of its own. Only one goroutine may use
// it.
type Holder struct {
	device    *Device
	queue     uint64
	buffers   map[uint32]*buffer
	programs  map[uint32]*program
	abandoned bool
	posting   atomic.Bool // a message is being written to the ring
}

type buffer struct {
	id, size    uint64
	initialized bool // its contents were written or zeroed
}

type program struct {
	built   *built
	kernels map[string]*kernel
}

type kernel struct {
	id     uint64 // 0: not created yet
	params parameters
}

// Holder adds a user of the device.
func (d *Device) Holder() (*Holder, error) {
	h := &Holder{device: d, queue: d.newID(), buffers: map[uint32]*buffer{}, programs: map[uint32]*program{}}
	return h, d.send(opClCreateCommandQueue, &argsClCreateCommandQueue{Context: d.context, Device: deviceID, Result: h.queue}, owner{})
}

// Close releases the holder's objects.
func (h *Holder) Close() {
	if h.abandoned {
		return // its objects may be in use; the end of the session releases them
	}
	limit := time.AfterFunc(closeLimit, h.device.failStalled)
	defer limit.Stop()
	for _, b := range h.buffers {
		h.release(kindMem, b.id)
	}
	for _, p := range h.programs {
		for _, k := range p.kernels {
			h.release(kindKernel, k.id)
		}
		for _, id := range h.device.library.release(p.built) {
			h.release(kindProgram, id)
		}
	}
	h.release(kindQueue, h.queue)
}

// closeLimit is how long the few messages of Close may wait for space in the ring.
const closeLimit = time.Second

func (h *Holder) release(kind uint32, id uint64) {
	if id != 0 {
		_ = h.device.send(opRelease, &argsRelease{Kind: kind, Object: id}, owner{}) // the end of a session releases all
	}
}
