package recording

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// Options configures Join.
type Options struct {
	// Dir is the folder with the files of the program's processes.
	Dir string
	// Header is the trace's header. In a local run Join adds the devices that the files name; in a
	// remote run, device i is the device of link i, and Join fills in its clock and link.
	Header trace.Header
	// End is the trace's end; Join sets its number of records and adds the lost calls.
	End trace.End
}

// Join writes the trace of the processes that have recorded into a folder. Without such processes
// the trace has no records.
func Join(w io.Writer, o Options) (trace.End, error) {
	entries, err := os.ReadDir(o.Dir) // not by a pattern: the folder has the name that the user chose
	if err != nil {
		return o.End, err
	}
	var processes []*process
	defer func() {
		for _, p := range processes {
			_ = p.file.Close()
		}
	}()
	for _, e := range entries {
		if filepath.Ext(e.Name()) != fileExt {
			continue
		}
		p, err := openProcess(filepath.Join(o.Dir, e.Name()))
		if err != nil {
			return o.End, err
		}
		processes = append(processes, p)
	}
	slices.SortFunc(processes, func(a, b *process) int { return int(a.opened - b.opened) })
	return join(w, o, processes)
}

func join(w io.Writer, o Options, processes []*process) (trace.End, error) {
	devices := newDevices(&o.Header)
	var joiners []*joiner
	for i, p := range processes {
		j, err := newJoiner(uint32(i), p, &o.Header, devices)
		if err != nil {
			return o.End, err
		}
		joiners = append(joiners, j)
		o.End.Lost += j.lost
	}
	if len(o.Header.Devices) == 0 {
		o.Header.Devices = []trace.Device{{Name: "none used", Machine: o.Header.Client, SameMachine: true}}
	}
	out, err := trace.NewWriter(w, o.Header)
	if err != nil {
		return o.End, err
	}
	for {
		j := earliest(joiners)
		if j == nil {
			o.End.Records = out.Records()
			return o.End, out.Close(o.End)
		}
		if err := j.step(out); err != nil {
			return o.End, err
		}
	}
}

// earliest returns the process whose next call began first, nil after the last call.
func earliest(joiners []*joiner) *joiner {
	var first *joiner
	for _, j := range joiners {
		if len(j.threads) > 0 && (first == nil || j.threads[0].call.begin < first.threads[0].call.begin) {
			first = j
		}
	}
	return first
}

// devices numbers the devices of a trace.
type devices struct {
	header *trace.Header
	byName map[string]uint8
}

func newDevices(h *trace.Header) *devices {
	d := &devices{header: h, byName: make(map[string]uint8)}
	for i := range h.Devices {
		d.byName[h.Devices[i].Name] = uint8(i)
	}
	return d
}

const maxDevices = 64

// number returns the index of the device with that name, which it adds to the header of a local
// run.
func (d *devices) number(name string, kind uint16) uint8 {
	if i, ok := d.byName[name]; ok || len(d.header.Devices) >= maxDevices || d.header.Mode != trace.Local {
		return i
	}
	i := uint8(len(d.header.Devices))
	device := trace.Device{Name: name, Kind: "accelerator", Machine: d.header.Client, SameMachine: true}
	switch {
	case kind&deviceTypeGPU != 0:
		device.Kind = "gpu"
	case kind&deviceTypeCPU != 0:
		device.Kind = "cpu"
	}
	d.header.Devices = append(d.header.Devices, device)
	d.byName[name] = i
	return i
}

// queueState is the known state of a command queue.
type queueState struct {
	number     uint64
	device     uint8
	outOfOrder bool
	lastEnd    int64 // of the commands so far, on the trace's clock
}

// joiner makes the records of one process.
type joiner struct {
	index     uint32
	origin    int64
	local     bool
	count     int // of devices
	functions []function
	threads   threadHeap
	devices   *deviceReader
	links     map[uint32]*linkReader
	clocks    map[uint8]*driverClock
	byHandle  map[uint64]uint8 // devices
	queues    map[uint64]*queueState
	events    map[uint64]eventState
	lastEvent uint64
	lastQueue uint64
	maps      map[uint64]mapping
	library   *library
	lost      uint64
	waits     []uint64
}

// eventState is the event at an address.
type eventState struct {
	number uint64
	end    int64 // of its command; 0: unknown
	// command says that it is no user event, and watched that the library has its completion told.
	command, watched bool
}

func newJoiner(index uint32, p *process, h *trace.Header, names *devices) (*joiner, error) {
	j := &joiner{
		index: index, origin: h.Origin, local: h.Mode == trace.Local, functions: functionsOf(h.Ops),
		devices: newDeviceReader(p), links: make(map[uint32]*linkReader), clocks: make(map[uint8]*driverClock),
		byHandle: make(map[uint64]uint8), queues: make(map[uint64]*queueState), events: make(map[uint64]eventState),
		maps: make(map[uint64]mapping), library: newLibrary(), lost: p.lost,
	}
	for _, s := range p.names {
		if err := j.readNames(s.cursor(), names); err != nil {
			return nil, err
		}
	}
	for i, s := range p.links {
		if int(i) >= len(h.Devices) {
			return nil, malformed("a recording of lease %d of %d", i, len(h.Devices))
		}
		l, err := newLinkReader(s, &h.Devices[i])
		if err != nil {
			return nil, err
		}
		j.links[i] = l
	}
	j.count = max(1, len(h.Devices))
	for _, s := range p.threads {
		j.lost += s.lost
		t := &threadReader{cursor: s.cursor(), last: p.opened}
		if err := t.next(); err == nil {
			j.threads = append(j.threads, t)
		} else if !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	heap.Init(&j.threads)
	return j, nil
}

func (p *joiner) readNames(c *cursor, names *devices) error {
	for {
		r, err := c.read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.kind != nameRecord || len(r.body) < nameHead-8 {
			return malformed("a record of kind %d among the names of devices", r.kind)
		}
		handle, size := binary.LittleEndian.Uint64(r.body), binary.LittleEndian.Uint64(r.body[8:])
		if size > uint64(len(r.body)-(nameHead-8)) {
			return malformed("a name of %d bytes", size)
		}
		name := strings.ToValidUTF8(string(r.body[nameHead-8:nameHead-8+int(size)]), "?")
		p.byHandle[handle] = names.number(name, r.op)
	}
}

// threadReader reads a thread's calls; call is the next one. A stream is reused after its thread
// has ended.
type threadReader struct {
	cursor *cursor
	call   rawCall
	thread uint32
	last   int64 // when the previous call ended
}

// threadShift separates a call's number into thread and count.
const threadShift = 40

func (t *threadReader) next() error {
	for {
		r, err := t.cursor.read()
		if err != nil {
			return err
		}
		switch r.kind {
		case callRecord:
			if err := parseCall(&r, &t.call); err != nil {
				return err
			}
			t.thread = uint32(t.call.number >> threadShift)
			return nil
		case deviceRecord, threadRecord:
		default:
			return malformed("a record of kind %d among a thread's", r.kind)
		}
	}
}

// threadHeap orders threads by their next call's beginning.
type threadHeap []*threadReader

func (h threadHeap) Len() int           { return len(h) }
func (h threadHeap) Less(i, j int) bool { return h[i].call.begin < h[j].call.begin }
func (h threadHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *threadHeap) Push(x any) { *h = append(*h, x.(*threadReader)) } //nolint:errcheck // only readers are pushed

// Pop implements heap.Interface.
func (h *threadHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// step writes the record of the process's next call.
func (p *joiner) step(out *trace.Writer) error {
	t := p.threads[0]
	r, err := p.join(t)
	if err != nil {
		return err
	}
	if err := out.Write(&r); err != nil {
		return &outboard.Error{Op: "recording", Kind: outboard.Invalid, Err: err}
	}
	switch err := t.next(); {
	case err == nil:
		heap.Fix(&p.threads, 0)
	case errors.Is(err, io.EOF):
		heap.Pop(&p.threads)
	default:
		return err
	}
	return nil
}
