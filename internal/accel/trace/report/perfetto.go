package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// event is an event of the Trace Event Format ("Trace Event Format", Google, 2016), which
// ui.perfetto.dev and chrome://tracing open: complete events (ph X), metadata (ph M) and flows
// (ph s, f). Times are microseconds.
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Time     float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Process  uint64         `json:"pid"`
	Thread   uint64         `json:"tid"`
	ID       string         `json:"id,omitempty"`
	Bind     string         `json:"bp,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// The process numbers of devices and workers, which are no processes of the program.
const (
	devicesPID = 1 << 20
	workersPID = 1 << 21
)

// perfetto writes events.
type perfetto struct {
	w       *bufio.Writer
	in      *trace.Reader
	header  *trace.Header
	first   bool
	named   map[[2]uint64]bool
	lastEnd map[[2]uint64]int64 // of the lanes of devices: a track's events must nest
	err     error
}

// Perfetto writes a trace as a JSON object of the Trace Event Format: a track for each thread of
// the program, for each device's worker (remote runs) and for each queue of a device, and an
// arrow from each call to its command.
func Perfetto(w io.Writer, r *trace.Reader) error { return newPerfetto(w, r).export() }

func newPerfetto(w io.Writer, r *trace.Reader) *perfetto {
	return &perfetto{
		w: bufio.NewWriter(w), in: r, header: r.Header(), first: true,
		named: make(map[[2]uint64]bool), lastEnd: make(map[[2]uint64]int64),
	}
}

func (p *perfetto) export() error {
	p.text(`{"displayTimeUnit":"ns","otherData":`)
	p.value(map[string]string{"program": printable(p.header.Program.Name), "mode": string(p.header.Mode), "recorder": printable(p.header.Recorder)})
	p.text(`,"traceEvents":[`)
	for {
		record, err := p.in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		p.call(&record, p.in.Records())
		if p.err != nil {
			return p.err
		}
	}
	p.text("\n]}\n")
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

func (p *perfetto) text(s string) {
	if _, err := p.w.WriteString(s); err != nil && p.err == nil {
		p.err = err
	}
}

func (p *perfetto) value(v any) {
	b, err := json.Marshal(v)
	if err != nil && p.err == nil {
		p.err = err
	}
	p.text(string(b))
}

func (p *perfetto) write(e event) {
	if !p.first {
		p.text(",")
	}
	p.first = false
	p.text("\n")
	p.value(e)
}

func micros(ns int64) float64 { return float64(ns) / 1000 }

func span(ns int64) *float64 {
	d := micros(ns)
	return &d
}

// printable replaces the characters that control a terminal, or reorder the text around them: not
// all of them are escaped in JSON.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// name writes the names of a track and of its process, once. The tracks beyond maxSets have none.
func (p *perfetto) name(process, thread uint64, processName, threadName string) {
	if len(p.named) >= maxSets {
		return
	}
	processName, threadName = printable(processName), printable(threadName)
	if !p.named[[2]uint64{process, 1 << 63}] {
		p.named[[2]uint64{process, 1 << 63}] = true
		p.write(event{Name: "process_name", Phase: "M", Process: process, Args: map[string]any{"name": processName}})
	}
	if !p.named[[2]uint64{process, thread}] {
		p.named[[2]uint64{process, thread}] = true
		p.write(event{Name: "thread_name", Phase: "M", Process: process, Thread: thread, Args: map[string]any{"name": threadName}})
	}
}

// call writes the number-th call: the call itself, its execution in the worker, its command.
func (p *perfetto) call(r *trace.Record, number uint64) {
	name := p.header.Ops[r.Op].Name
	process, thread := uint64(r.Process)+1, uint64(r.Thread)
	p.name(process, thread, fmt.Sprintf("%s, process %d", p.header.Program.Name, r.Process), fmt.Sprintf("thread %d", r.Thread))
	args := map[string]any{"class": r.Class.String(), "forward_bytes": r.Forward, "backward_bytes": r.Backward, "blocked_ns": r.Blocked, "execute_ns": r.Execute}
	if r.Queue != 0 {
		args["queue"] = r.Queue
	}
	p.write(event{Name: name, Category: r.Class.String(), Phase: "X", Time: micros(r.Begin), Duration: span(r.Duration()), Process: process, Thread: thread, Args: args})
	if p.header.Mode == trace.Remote && r.Class != trace.AnsweredLocally && r.Execute > 0 {
		p.name(workersPID, uint64(r.Device), "workers", "worker of "+p.header.Devices[r.Device].Name)
		p.write(event{
			Name: name, Category: "worker", Phase: "X", Time: micros(r.Begin + r.Encode + r.WireForward), Duration: span(r.Execute),
			Process: workersPID, Thread: uint64(r.Device),
		})
	}
	if r.HasDeviceTime() && r.DeviceTime > 0 {
		p.command(r, name, number, process, thread)
	}
}

// command writes a command of a device. Commands of one queue that overlap get lanes.
func (p *perfetto) command(r *trace.Record, name string, number, process, thread uint64) {
	const lanes = 16
	base := (r.Queue*uint64(len(p.header.Devices))+uint64(r.Device))*lanes + uint64(r.Process)<<40
	lane := uint64(0)
	for lane < lanes-1 && p.lastEnd[[2]uint64{devicesPID, base + lane}] > r.Start {
		lane++
	}
	track := base + lane
	if at := [2]uint64{devicesPID, track}; len(p.lastEnd) < maxSets || p.lastEnd[at] != 0 {
		p.lastEnd[at] = r.Start + r.DeviceTime
	}
	p.name(devicesPID, track, "devices", fmt.Sprintf("%s, queue %d", p.header.Devices[r.Device].Name, r.Queue))
	p.write(event{Name: name, Category: "device", Phase: "X", Time: micros(r.Start), Duration: span(r.DeviceTime), Process: devicesPID, Thread: track})
	id := fmt.Sprintf("%d", number)
	p.write(event{Name: "enqueued", Category: "flow", Phase: "s", Time: micros(r.Begin), Process: process, Thread: thread, ID: id})
	p.write(event{Name: "enqueued", Category: "flow", Phase: "f", Bind: "e", Time: micros(r.Start), Process: devicesPID, Thread: track, ID: id})
}
