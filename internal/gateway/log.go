package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Record is one call in an app's logs.
type Record struct {
	App     string
	Call    string // the answer's ID
	Target  string // the function or workflow
	Trigger Trigger
	Route   string
	// Execution and Step identify the step of a workflow that made the call, if one did.
	Execution, Step string
	Begin           time.Time
	Took            time.Duration
	// Status is the status of the HTTP response, 0 if there is none.
	Status int
	// Err is the error, nil for none.
	Err  error
	Fuel int64
	// Stdout and Stderr are the first MaxOutput bytes that the function wrote; Cut is the number of
	// bytes left out.
	Stdout, Stderr []byte
	Cut            int
	Trace          trace.TraceID
	// Lost is not 0 for a record that replaces so many records, since a follower read too slowly.
	// Its other fields are empty.
	Lost int
}

// MaxOutput is how many bytes of each output stream of a call are kept.
const MaxOutput = 8 << 10

// Filter selects records.
type Filter struct {
	App    string
	Target string // "" for all
	// Last is how many of the newest records are returned first, 0 for all that are kept, -1 for
	// none.
	Last int
	// KeptSent, if it is not nil, is called by Follow after the kept records.
	KeptSent func()
}

// Logs returns the kept records of an app, oldest first.
func (g *Gateway) Logs(f Filter) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		r := g.ringOf(f.App)
		if r == nil {
			return
		}
		found, _ := r.newest(f)
		for _, record := range found {
			if !yield(record) {
				return
			}
		}
	}
}

// Follow returns the records that Logs returns, and then new ones until ctx ends or the app is
// removed. A record with Lost stands for the records that a slow reader missed.
func (g *Gateway) Follow(ctx context.Context, f Filter) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if r := g.ringOf(f.App); r != nil {
			r.stream(ctx, f, yield)
		}
	}
}

func (g *Gateway) ringOf(app string) *ring {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.apps[app]; s != nil {
		return s.ring
	}
	return nil
}

// Log adds a record of a call that was not made by the gateway: a workflow's step, a call of a
// function by another.
func (g *Gateway) Log(r Record) {
	to := g.ringOf(r.App)
	if to == nil {
		return
	}
	r.copyOutput()
	to.add(&r)
}

// copyOutput copies the part of the output that is kept: the original belongs to the caller.
func (r *Record) copyOutput() {
	for _, b := range []*[]byte{&r.Stdout, &r.Stderr} {
		if over := len(*b) - MaxOutput; over > 0 {
			r.Cut += over
			*b = (*b)[:MaxOutput]
		}
		*b = append([]byte(nil), *b...)
	}
}

// outcome is the result of a call.
type outcome struct {
	call   *Call
	answer *Answer
	err    error
	status int // 0 if there is no client
	begin  time.Time
	took   time.Duration
	span   trace.Span
	trace  trace.SpanContext
	ring   *ring // nil: found by the app's name
}

// record adds a call to the app's log, its metrics and its span.
func (g *Gateway) record(o outcome) {
	if o.span != nil {
		o.trace = o.span.SpanContext()
	}
	endSpan(o.span, o.err, o.status)
	if o.status == 0 {
		g.metrics.calls.WithLabelValues(o.call.App, string(o.call.Trigger), o.call.Route, resultOf(o.err)).Inc()
	}
	if o.ring == nil {
		if o.ring = g.ringOf(o.call.App); o.ring == nil {
			return
		}
	}
	r := Record{
		App: o.call.App, Call: o.answer.ID, Target: o.call.target(), Trigger: o.call.Trigger, Route: o.call.Route,
		Begin: o.begin, Took: o.took, Status: o.status, Err: o.err, Fuel: o.answer.Fuel,
		Stdout: o.answer.Stdout, Stderr: o.answer.Stderr, Trace: o.trace.TraceID(),
	}
	if o.call.Workflow != "" {
		r.Call, r.Execution = "", o.answer.ID
	}
	r.copyOutput()
	o.ring.add(&r)
}

func resultOf(err error) string {
	if err == nil {
		return "done"
	}
	return outboard.KindOf(err).String()
}

// ring keeps the newest records of an app.
type ring struct {
	mu      sync.Mutex
	records []Record // record n is at n % limit
	next    uint64   // the number of the next record
	limit   uint64
	wake    chan struct{} // closed at the next record; nil while no follower waits
	closed  bool          // the app was removed
	// output bounds the output of the functions of all apps of the tenant. Records before dropped
	// have lost their output.
	output  *quota.Budget
	dropped uint64
}

func newRing(limit int, output *quota.Budget) *ring {
	return &ring{limit: uint64(limit), output: output}
}

func (r *ring) add(record *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	full := uint64(len(r.records)) == r.limit
	if full {
		r.records[r.next%r.limit].dropOutput(r.output)
	}
	r.reserveOutput(record)
	if !full {
		r.records = append(r.records, *record)
	} else {
		r.records[r.next%r.limit] = *record
	}
	r.next++
	r.wakeFollowers()
}

// reserveOutput reserves the bytes of a new record's output, and drops the oldest output of the app
// for it. The output of other apps of the tenant stays: if there is still no space, the new
// record's output is dropped.
func (r *ring) reserveOutput(record *Record) {
	oldest := r.next - uint64(len(r.records))
	for r.dropped = max(r.dropped, oldest); r.output.TryReserve(record.outputSize()) != nil; r.dropped++ {
		if r.dropped == r.next {
			record.cutOutput()
			return
		}
		r.records[r.dropped%r.limit].dropOutput(r.output)
	}
}

func (r *Record) outputSize() int64 { return int64(len(r.Stdout) + len(r.Stderr)) }

// cutOutput drops the output, which was not reserved.
func (r *Record) cutOutput() {
	r.Cut += int(r.outputSize())
	r.Stdout, r.Stderr = nil, nil
}

// dropOutput drops the output, and releases its bytes.
func (r *Record) dropOutput(reserved *quota.Budget) {
	reserved.Release(r.outputSize())
	r.cutOutput()
}

// wakeFollowers wakes the followers that wait for a record.
func (r *ring) wakeFollowers() {
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// close ends the followers after the last record. It releases the bytes of the output that only
// they still hold.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for i := range r.records {
		r.output.Release(r.records[i].outputSize())
	}
	r.wakeFollowers()
}

// recordAt returns record n or, if it was overwritten, the oldest one and how many were lost. If
// record n does not exist yet, it returns a channel to wait on, or end if there will be no more
// records.
func (r *ring) recordAt(n uint64) (record Record, lost uint64, wake <-chan struct{}, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if oldest := r.next - uint64(len(r.records)); n < oldest {
		return r.records[oldest%r.limit], oldest - n, nil, false
	}
	if n < r.next {
		return r.records[n%r.limit], 0, nil, false
	}
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return Record{}, 0, r.wake, r.closed
}

func (f *Filter) matches(r *Record) bool { return f.Target == "" || f.Target == r.Target }

// newest returns the newest records and the number of the next one.
func (r *ring) newest(f Filter) ([]Record, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Record
	for n := r.next - uint64(len(r.records)); n < r.next && f.Last >= 0; n++ {
		if record := &r.records[n%r.limit]; f.matches(record) {
			found = append(found, *record)
		}
	}
	if f.Last > 0 {
		found = found[max(0, len(found)-f.Last):]
	}
	return found, r.next
}

func (r *ring) stream(ctx context.Context, f Filter, yield func(Record) bool) {
	first, next := r.newest(f)
	for _, record := range first {
		if !yield(record) {
			return
		}
	}
	if f.KeptSent != nil {
		f.KeptSent()
	}
	for ctx.Err() == nil {
		record, lost, wake, end := r.recordAt(next)
		if end {
			return
		}
		if wake != nil {
			select {
			case <-wake:
			case <-ctx.Done():
			}
			continue
		}
		if lost > 0 && !yield(Record{Lost: int(lost)}) {
			return
		}
		if next += lost + 1; f.matches(&record) && !yield(record) {
			return
		}
	}
}

// Line is a line of an app's log: output of a function, or the result of a call.
type Line struct {
	Time      time.Time `json:"time"`
	App       string    `json:"app"`
	Function  string    `json:"function,omitempty"`
	Call      string    `json:"call,omitempty"`
	Execution string    `json:"execution,omitempty"`
	Step      string    `json:"step,omitempty"`
	Trace     string    `json:"trace,omitempty"`
	// Stream is "stdout", "stderr", or "call" for a line about the whole call.
	Stream  string        `json:"stream"`
	Text    string        `json:"text"`
	Trigger Trigger       `json:"trigger,omitempty"`
	Route   string        `json:"route,omitempty"`
	Kind    string        `json:"kind,omitempty"`
	Status  int           `json:"status,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Fuel    int64         `json:"fuel,omitempty"`
}

// Lines returns a record as lines: the output, then one line about the call.
func (r *Record) Lines() []Line {
	if r.Lost > 0 {
		return []Line{{Stream: "call", Text: fmt.Sprintf("%d calls were lost: they came faster than they were read", r.Lost)}}
	}
	base := Line{Time: r.Begin, App: r.App, Function: r.Target, Call: r.Call, Execution: r.Execution, Step: r.Step, Trace: r.traceText()}
	lines := appendOutput(nil, base, "stdout", r.Stdout)
	lines = appendOutput(lines, base, "stderr", r.Stderr)
	whole := base
	whole.Time = r.Begin.Add(r.Took)
	whole.Stream, whole.Text, whole.Trigger, whole.Route = "call", r.text(), r.Trigger, r.Route
	whole.Status, whole.Took, whole.Fuel = r.Status, r.Took, r.Fuel
	if r.Err != nil {
		whole.Kind = outboard.KindOf(r.Err).String()
	}
	return append(lines, whole)
}

func (r *Record) traceText() string {
	if !r.Trace.IsValid() {
		return ""
	}
	return r.Trace.String()
}

func (r *Record) text() string {
	text := "done"
	if r.Err != nil {
		text = "failed: " + r.Err.Error()
	}
	if r.Cut > 0 {
		text += fmt.Sprintf(" (%d bytes of output left out)", r.Cut)
	}
	return text
}

func appendOutput(lines []Line, base Line, stream string, output []byte) []Line {
	if len(output) == 0 {
		return lines
	}
	for text := range strings.Lines(string(output)) {
		base.Stream, base.Text = stream, strings.TrimRight(text, "\r\n")
		lines = append(lines, base)
	}
	return lines
}

// String returns the line in a form for people.
func (l Line) String() string {
	text := l.Time.Format("2006-01-02 15:04:05.000") + " " + l.App + "/" + l.Function + " " + l.Stream + ": " + printable(l.Text)
	if l.Stream != "call" {
		return text
	}
	text += fmt.Sprintf(", %s %s, %v", l.Trigger, l.Route, l.Took.Round(time.Microsecond))
	if l.Status != 0 {
		text += fmt.Sprintf(", status %d", l.Status)
	}
	return text
}

// printable replaces control characters, which a terminal would interpret.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\t' && c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return '\uFFFD'
		}
		return c
	}, text)
}

// JSON returns the line as JSON, without a newline.
func (l Line) JSON() []byte {
	text, err := json.Marshal(l)
	if err != nil {
		return []byte("{}") // a Line has no values that can't be encoded
	}
	return text
}
