package worker

import (
	"errors"
	"os"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/shm/memfd"
	"github.com/outboard-run/outboard/internal/wire"
)

// The messages between a node and a process of a tenant, on a connection of their own for each
// bypass: it ends with the connection.
const (
	TypeBypassRequest = "bypass"         // the first message: BypassRequest
	TypeBypassGranted = "bypass granted" // from the node: BypassGranted, with the files of Bypass.Files
	TypeBypassEnded   = "bypass ended"   // from the node: ipc.Reason
)

// A BypassRequest asks a node for a bypass to a model.
type BypassRequest struct {
	// Key proves the tenant of the process.
	Key   string `json:"key"`
	Model string `json:"model"`
	// Size is how many bytes the tensors of a call have.
	Size int `json:"size"`
}

// BypassGranted accompanies the files of a bypass.
type BypassGranted struct {
	// Timeout bounds the time of a call that has no earlier deadline.
	Timeout time.Duration `json:"timeout"`
}

// BypassOptions configure both ends of a connection for a bypass.
//
//nolint:gochecknoglobals // a constant
var BypassOptions = ipc.Options{MaxBody: 16 << 10, MaxReceived: 32 << 10}

// MaxBypass bounds the tensors of a call through a bypass, in bytes.
const MaxBypass = 64 << 20

// ErrNoBypass is the result of a call that the caller has to send through the node: others use the
// model, the tensors do not fit, or the worker is being unloaded.
var ErrNoBypass = errors.New("the call has to go through the node")

const (
	// bypassHeader is the size of the part of the shared memory before the tensors, in bytes. Its
	// first word is the number of the last call that the caller has abandoned.
	bypassHeader = alignment
	// wordsSize is the size of the files for the gate and the counters, in bytes.
	wordsSize = 4096
)

// A gate is memory that only the node can write to. While it is closed the worker executes no call
// of a bypass.
type gate []byte

func (g gate) isOpen() bool { return wordAt(g, 0).Load() == 1 }

func (g gate) set(open bool) {
	if open {
		wordAt(g, 0).Store(1)
		return
	}
	wordAt(g, 0).Store(0)
}

// BypassCounts count the calls that a worker has executed for a bypass.
type BypassCounts struct {
	Succeeded, Failed uint64
	// Rows counts the rows of the successful calls.
	Rows uint64
	// The times are sums over successful and over failed calls.
	Time, FailedTime time.Duration
}

// Add adds the counts of another bypass.
func (c *BypassCounts) Add(more BypassCounts) {
	c.Succeeded += more.Succeeded
	c.Failed += more.Failed
	c.Rows += more.Rows
	c.Time += more.Time
	c.FailedTime += more.FailedTime
}

// counters are memory that the worker writes to and the node reads: BypassCounts, one word a member.
type counters []byte

func (c counters) add(rows int, took time.Duration, err error) {
	if err != nil {
		wordAt(c, 8).Add(1)
		wordAt(c, 32).Add(uint64(took))
		return
	}
	wordAt(c, 0).Add(1)
	wordAt(c, 16).Add(uint64(max(rows, 1)))
	wordAt(c, 24).Add(uint64(took))
}

func (c counters) read() BypassCounts {
	return BypassCounts{
		Succeeded: wordAt(c, 0).Load(), Failed: wordAt(c, 8).Load(), Rows: wordAt(c, 16).Load(),
		Time: time.Duration(wordAt(c, 24).Load()), FailedTime: time.Duration(wordAt(c, 32).Load()),
	}
}

// A bypassRequest is a frame from the caller. Its tensors lie in the memory of the bypass; timeout
// bounds the execution.
type bypassRequest struct {
	timeout time.Duration
	request
}

func (r *bypassRequest) encode(e *wire.Encoder) {
	e.I64(int64(r.timeout))
	r.request.encode(e)
}

func (r *bypassRequest) decode(d *wire.Decoder) error {
	r.timeout = time.Duration(d.I64())
	return r.request.decode(d)
}

// The outcomes of a call. All but bypassExecuted make the caller go through the node.
const (
	bypassExecuted = iota
	bypassClosed   // the gate is closed
	bypassTooLarge // the outputs do not fit
)

// A bypassReply is a frame from the worker.
type bypassReply struct {
	outcome uint64
	reply
}

func (r *bypassReply) encode(e *wire.Encoder) {
	e.U64(r.outcome)
	r.reply.encode(e)
}

func (r *bypassReply) decode(d *wire.Decoder) error {
	r.outcome = d.U64()
	return r.reply.decode(d)
}

// bypassMemory is the memory of a bypass that its worker or its caller has mapped.
type bypassMemory struct {
	ring    *shm.Ring
	tensors *segment
	gate    gate
	counts  *segment // nil in the caller
}

// The files of a bypass, in the order in which they are passed. The caller does not get the last
// one.
const (
	fileRing = iota
	fileTensors
	fileGate
	fileCounters
	callerFiles = fileCounters
	workerFiles = fileCounters + 1
)

// openBypassMemory maps the files of a bypass, and closes them. side is the end of the ring.
func openBypassMemory(files []*os.File, side shm.Side) (_ *bypassMemory, err error) {
	m := &bypassMemory{}
	defer func() {
		for _, f := range files {
			_ = f.Close() // the ring's is nil
		}
		if err != nil {
			m.unmap()
		}
	}()
	if want := map[shm.Side]int{shm.Client: callerFiles, shm.Worker: workerFiles}[side]; len(files) != want {
		return nil, outboard.Errorf(outboard.Protocol, "bypass", "%d files came along and not %d", len(files), want)
	}
	if m.gate, err = memfd.MapPublished(files[fileGate], wordsSize); err != nil {
		return nil, err
	}
	if m.tensors, err = openSegment(0, files[fileTensors]); err != nil {
		return nil, err
	}
	m.tensors.closeFile()
	if side == shm.Worker {
		if m.counts, err = openSegment(0, files[fileCounters]); err != nil {
			return nil, err
		}
		m.counts.closeFile()
	}
	if len(m.tensors.mem) < minSegment || m.counts != nil && len(m.counts.mem) < wordsSize {
		return nil, outboard.Errorf(outboard.Protocol, "bypass", "a file is too small")
	}
	if m.ring, err = shm.Open(files[fileRing], side); err != nil {
		return nil, err
	}
	files[fileRing] = nil
	return m, nil
}

// unmap unmaps the memory, which must not be in use.
func (m *bypassMemory) unmap() {
	memfd.Unmap(m.gate)
	m.gate = nil
	for _, s := range []*segment{m.tensors, m.counts} {
		if s != nil {
			s.unmap()
		}
	}
	if m.ring != nil {
		m.ring.Unmap()
	}
}
