package report

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// Summary summarises the run of a recorded program. Times are in ns, sizes in bytes.
type Summary struct {
	Program     string     `json:"program"`
	Fingerprint string     `json:"fingerprint"`
	Mode        trace.Mode `json:"mode"`
	API         string     `json:"api"`
	Devices     []string   `json:"devices"`
	// Duration is the length of the run, or of the recorded part of it if the trace was cut off.
	Duration  int64  `json:"duration_ns"`
	Processes int    `json:"processes"`
	Threads   int    `json:"threads"`
	Queues    int    `json:"queues"`
	Lost      uint64 `json:"lost"`
	Truncated bool   `json:"truncated"`
	Status    int    `json:"status"`
	Total     Totals `json:"total"`
	// Phases are the parts of the run in their order.
	Phases []Phase `json:"phases"`
	// Functions are the API's functions, that with the longest time in calls first.
	Functions []Function `json:"functions"`
}

// Totals are sums over calls.
type Totals struct {
	Calls uint64 `json:"calls"`
	// Local, Early and Waited count the calls by their class.
	Local  uint64 `json:"answered_locally"`
	Early  uint64 `json:"early"`
	Waited uint64 `json:"waited_for"`
	Failed uint64 `json:"failed"`
	// Commands counts the calls that occupy the device.
	Commands uint64 `json:"commands"`
	// Forward and Backward are the bytes of messages towards the device and back.
	Forward  uint64 `json:"forward_bytes"`
	Backward uint64 `json:"backward_bytes"`
	// Gap is the program's own time between calls, summed over threads.
	Gap int64 `json:"gap_ns"`
	// InCalls is the time within calls; Blocked is the part of it in which the calls waited.
	InCalls int64 `json:"in_calls_ns"`
	Blocked int64 `json:"blocked_ns"`
	// Execute is the processor time of the real driver.
	Execute int64 `json:"execute_ns"`
	// Device is the time in which devices executed commands.
	Device int64 `json:"device_ns"`
}

// Phase is a part of a run.
type Phase struct {
	// Name is "set-up" (until the first command of the device), "run" (until the last command
	// or the wait for it) or "end".
	Name  string `json:"name"`
	Begin int64  `json:"begin_ns"`
	End   int64  `json:"end_ns"`
	Totals
}

// Function sums the costs of the calls of one function.
type Function struct {
	Name string `json:"name"`
	Totals
	// Longest is the duration of the longest call.
	Longest int64 `json:"longest_ns"`
}

func (t *Totals) add(r *trace.Record) {
	t.Calls++
	switch r.Class {
	case trace.AnsweredLocally:
		t.Local++
	case trace.Early:
		t.Early++
	case trace.WaitedFor:
		t.Waited++
	}
	if r.Failed {
		t.Failed++
	}
	if r.Command {
		t.Commands++
	}
	t.merge(&Totals{
		Forward: r.Forward, Backward: r.Backward, Gap: r.Gap, InCalls: r.Duration(), Blocked: r.Blocked, Execute: r.Execute, Device: r.DeviceTime,
	})
}

// sum returns the sum of values that are not negative, at most a limit: a hostile trace has times and
// sizes whose sum no integer holds.
func sum[T int64 | uint64](a, b, limit T) T { return a + min(b, limit-a) }

func (t *Totals) merge(o *Totals) {
	t.Calls += o.Calls
	t.Local += o.Local
	t.Early += o.Early
	t.Waited += o.Waited
	t.Failed += o.Failed
	t.Commands += o.Commands
	t.Forward, t.Backward = sum(t.Forward, o.Forward, math.MaxUint64), sum(t.Backward, o.Backward, math.MaxUint64)
	for _, v := range []struct {
		to *int64
		n  int64
	}{{&t.Gap, o.Gap}, {&t.InCalls, o.InCalls}, {&t.Blocked, o.Blocked}, {&t.Execute, o.Execute}, {&t.Device, o.Device}} {
		*v.to = sum(*v.to, v.n, math.MaxInt64)
	}
}

// phases sums the parts of a run. The calls after a command may turn out to be the run's end, which
// only the end of the trace shows: until then tail sums them.
type phases struct {
	setUp, run, tail Phase
	began            bool
}

func (p *phases) add(r *trace.Record) {
	switch works := r.Command || r.Blocking == trace.HostBlocking; {
	case works:
		if !p.began {
			p.began, p.run.Begin = true, r.Begin
		}
		p.run.merge(&p.tail.Totals)
		p.tail.Totals = Totals{}
		p.run.add(r)
		p.run.End = max(p.run.End, r.End, r.Start+r.DeviceTime)
	case p.began:
		p.tail.add(r)
	default:
		p.setUp.add(r)
		p.setUp.End = max(p.setUp.End, r.End)
	}
}

func (p *phases) list(duration int64) []Phase {
	p.setUp.Name, p.run.Name, p.tail.Name = "set-up", "run", "end"
	if !p.began {
		p.setUp.End = duration
		return []Phase{p.setUp}
	}
	p.setUp.End = p.run.Begin
	p.run.End = min(p.run.End, max(duration, p.run.Begin))
	p.tail.Begin, p.tail.End = p.run.End, max(duration, p.run.End)
	return []Phase{p.setUp, p.run, p.tail}
}

// maxSets bounds the threads and queues that a summary distinguishes, and the tracks of an export
// that have a name or lanes.
const maxSets = 1 << 16

// Summarize reads a trace to its end.
func Summarize(r *trace.Reader) (*Summary, error) {
	h := r.Header()
	s := &Summary{Program: h.Program.Name, Fingerprint: h.Program.Fingerprint, Mode: h.Mode, API: h.API}
	for _, d := range h.Devices {
		s.Devices = append(s.Devices, d.Name)
	}
	functions := make([]Function, len(h.Ops))
	var parts phases
	processes, threads, queues := make(map[uint32]bool), make(map[uint64]bool), make(map[[2]uint64]bool)
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		s.Total.add(&record)
		parts.add(&record)
		f := &functions[record.Op]
		f.add(&record)
		f.Longest = max(f.Longest, record.Duration())
		s.Duration = max(s.Duration, record.End)
		if len(threads) < maxSets {
			processes[record.Process] = true
			threads[uint64(record.Process)<<32|uint64(record.Thread)] = true
		}
		if record.Queue != 0 && len(queues) < maxSets {
			queues[[2]uint64{uint64(record.Process), record.Queue}] = true
		}
	}
	s.Processes, s.Threads, s.Queues, s.Truncated = len(processes), len(threads), len(queues), r.Truncated()
	if end := r.End(); end != nil {
		s.Duration, s.Lost, s.Status = max(s.Duration, end.Duration), end.Lost, end.Status
	}
	s.Phases = parts.list(s.Duration)
	for i := range functions {
		functions[i].Name = h.Ops[i].Name
		if functions[i].Calls > 0 {
			s.Functions = append(s.Functions, functions[i])
		}
	}
	slices.SortStableFunc(s.Functions, func(a, b Function) int { return cmp.Compare(b.InCalls, a.InCalls) })
	return s, nil
}
