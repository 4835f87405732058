package peer

import (
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

func stepRequest(c *engine.FunctionCall) *StepRequest {
	return &StepRequest{
		Execution: string(c.Execution), Path: c.Path, App: c.App, Version: int64(c.Version), Function: c.Function, Entry: c.Entry,
		Type: c.Type, Meta: c.Meta, Body: c.Body,
	}
}

func (x *StepRequest) call() engine.FunctionCall {
	return engine.FunctionCall{
		Execution: engine.ID(x.GetExecution()), Path: x.GetPath(), App: x.GetApp(), Version: int(x.GetVersion()), Function: x.GetFunction(),
		Entry: x.GetEntry(), Type: x.GetType(), Meta: x.GetMeta(), Body: x.GetBody(),
	}
}

func stepReply(o *engine.Outcome, err error) *StepReply {
	r := &StepReply{Type: o.Type, Run: runMessage(&o.Run), Body: o.Body}
	if fault, ok := err.(*dsl.Error); ok { //nolint:errorlint // only the engine's own errors are faults
		r.Fault = &Fault{Type: fault.Type, Status: int32(fault.Status), Title: fault.Title, Detail: fault.Detail, Instance: fault.Instance}
	} else if err != nil {
		r.Failure = &Failure{Kind: int32(outboard.KindOf(err)), Text: err.Error()}
	}
	return r
}

func (x *StepReply) outcome() (engine.Outcome, error) {
	o := engine.Outcome{Body: x.GetBody(), Type: x.GetType(), Run: x.GetRun().run()}
	switch f := x.GetFault(); {
	case f != nil:
		return o, &dsl.Error{Type: f.GetType(), Status: int(f.GetStatus()), Title: f.GetTitle(), Detail: f.GetDetail(), Instance: f.GetInstance()}
	case x.GetFailure() != nil:
		return o, outboard.Errorf(outboard.Kind(x.GetFailure().GetKind()), "", "%s", x.GetFailure().GetText())
	}
	return o, nil
}

func runMessage(r *engine.Run) *Run {
	m := &Run{
		Node: r.Node, Start: r.Start, Began: timeMessage(r.Began), Queued: int64(r.Queued), Took: int64(r.Took),
		Pointer: r.Pointer, Copied: r.Copied, Fuel: r.Fuel,
	}
	for _, i := range r.Imports {
		m.Imports = append(m.Imports, &Import{
			Name: i.Name, Calls: int64(i.Calls), Took: int64(i.Took), Waited: int64(i.Waited), Bytes: i.Bytes,
		})
	}
	return m
}

func (x *Run) run() engine.Run {
	r := engine.Run{
		Node: x.GetNode(), Start: x.GetStart(), Began: timeOf(x.GetBegan()), Queued: time.Duration(x.GetQueued()), Took: time.Duration(x.GetTook()),
		Pointer: x.GetPointer(), Copied: x.GetCopied(), Fuel: x.GetFuel(),
	}
	for _, i := range x.GetImports() {
		r.Imports = append(r.Imports, engine.Import{
			Name: i.GetName(), Calls: int(i.GetCalls()), Took: time.Duration(i.GetTook()), Waited: time.Duration(i.GetWaited()), Bytes: i.GetBytes(),
		})
	}
	return r
}

func timeMessage(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// Counts are the counts of a function of an app's version on one node.
type Counts struct {
	App     string
	Version int
	Name    string
	Counts  client.FunctionCounts
	Times   []time.Duration // of its last calls
}

func countsMessage(all []Counts) *CallCounts {
	m := &CallCounts{}
	for i := range all {
		c := &all[i]
		f := &FunctionCounts{
			App: c.App, Version: int64(c.Version), Function: c.Name, Calls: c.Counts.Calls, Errors: c.Counts.Errors,
			Running: int64(c.Counts.Running), Waiting: int64(c.Counts.Waiting), Instances: int64(c.Counts.Instances),
			Cold: c.Counts.Cold, Cloned: c.Counts.Cloned, Reset_: c.Counts.Reset, Fuel: c.Counts.Fuel,
		}
		for _, took := range c.Times {
			f.Times = append(f.Times, int64(took))
		}
		m.Functions = append(m.Functions, f)
	}
	return m
}

func (x *CallCounts) counts() []Counts {
	all := []Counts{}
	for _, f := range x.GetFunctions() {
		c := Counts{App: f.GetApp(), Version: int(f.GetVersion()), Name: f.GetFunction(), Counts: client.FunctionCounts{
			Calls: f.GetCalls(), Errors: f.GetErrors(), Running: int(f.GetRunning()), Waiting: int(f.GetWaiting()),
			Instances: int(f.GetInstances()), Cold: f.GetCold(), Cloned: f.GetCloned(), Reset: f.GetReset_(), Fuel: f.GetFuel(),
		}}
		for _, took := range f.GetTimes() {
			c.Times = append(c.Times, time.Duration(took))
		}
		all = append(all, c)
	}
	return all
}

func logBatch(lines []client.LogLine) *LogBatch {
	m := &LogBatch{}
	for i := range lines {
		l := &lines[i]
		m.Lines = append(m.Lines, &LogLine{
			Time: timeMessage(l.Time), Node: string(l.Node), App: l.App, Function: l.Function, Call: l.Call, Execution: l.Execution,
			Step: l.Step, Stream: l.Stream, Text: l.Text, Trigger: l.Trigger, Status: int32(l.Status),
			Took: int64(l.Took), Fuel: l.Fuel,
		})
	}
	return m
}

func (x *LogBatch) lines() []client.LogLine {
	var all []client.LogLine
	for _, l := range x.GetLines() {
		all = append(all, client.LogLine{
			Time: timeOf(l.GetTime()), Node: outboard.NodeID(l.GetNode()), App: l.GetApp(), Function: l.GetFunction(), Call: l.GetCall(),
			Execution: l.GetExecution(), Step: l.GetStep(), Stream: l.GetStream(), Text: l.GetText(), Trigger: l.GetTrigger(),
			Status: int(l.GetStatus()), Took: client.Duration(l.GetTook()), Fuel: l.GetFuel(),
		})
	}
	return all
}
