package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// maxReroutes bounds how often a call is made again because the node that it went
// to could not be reached.
const maxReroutes = 10

// stepCall is one call of a step, with its retries.
type stepCall struct {
	r    *executor
	call core.Call
}

// call starts a call. at is the time of the event that caused it.
func (r *executor) call(c core.Call, at time.Time) {
	stepDriver{r}.start(c.Path, c.Function, at, (&stepCall{r, c}).attempt)
}

// stepDriver starts the activities of an execution that end with a record of a step.
type stepDriver struct{ r *executor }

// start starts an activity. target is the function or the service, for traces.
func (d stepDriver) start(path, target string, at time.Time, perform func(context.Context) (Outcome, error)) {
	r := d.r
	r.begin(path, func(ctx context.Context) func() {
		began := time.Now()
		r.e.metrics.handover.Observe(began.Sub(at).Seconds())
		ctx, span := r.e.opts.Tracer.Start(ctx, "step "+path, trace.WithAttributes(
			attribute.String("outboard.execution", string(r.id)),
			attribute.String("outboard.step", path),
			attribute.String("outboard.function", target),
		))
		defer span.End()
		out, err := perform(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if out.Run.Began.IsZero() {
			out.Run.Began = began.UTC().Round(0)
		}
		if out.Run.Took == 0 {
			out.Run.Took = time.Since(began)
		}
		step, extent, err := d.outcome(ctx, path, out, err)
		if err != nil {
			step.Error = toStepError(err)
		}
		if step.Error != nil {
			span.SetStatus(codes.Error, step.Error.Error())
		}
		span.SetAttributes(attribute.String("outboard.node", out.Run.Node))
		r.e.metrics.stepped(step, out.Run, time.Since(began))
		return func() { r.stepEnded(step, extent) }
	})
}

// stepEnded applies the end of a call.
func (r *executor) stepEnded(step *core.Step, extent *Extent) {
	added := r.apply(core.Event{Step: step})
	if added == nil || step.Value == nil {
		return
	}
	r.values.add(step.Path, *step.Value, extent)
	r.save(added, step.Path, *extent, func(digest string) { step.Value.Digest = digest })
}

// attempt makes the call until its end is known: an unreachable node is replaced by another one,
// and a busy function is called again with exponential back-off.
func (s *stepCall) attempt(ctx context.Context) (Outcome, error) {
	call := FunctionCall{
		Execution: s.r.id, Path: s.call.Path, App: s.r.id.App(), Version: s.r.version,
		Function: s.call.Function, Entry: s.call.Entry, Meta: s.call.Meta, Workflow: s.r.workflow,
	}
	if err := s.r.values.request(ctx, s.call.Body, &call); err != nil {
		return Outcome{}, err
	}
	reroutes := 0
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		out, err := s.r.e.opts.Functions.Call(ctx, call)
		switch outboard.KindOf(err) {
		case outboard.Busy:
		case outboard.Unreachable:
			if reroutes++; reroutes > maxReroutes {
				return out, err
			}
		default:
			return out, err
		}
		s.r.e.log.Debug("a step is called again", "execution", s.r.id, "step", s.call.Path, "error", err)
		if !sleep(ctx, pause) {
			return out, ctx.Err()
		}
	}
}

// outcome returns the record of a call's end, with the extent of a result that is large or no JSON.
func (d stepDriver) outcome(ctx context.Context, path string, out Outcome, failed error) (*core.Step, *Extent, error) {
	step := &core.Step{Path: path}
	text, err := json.Marshal(out.Run)
	if err != nil {
		return step, nil, err
	}
	step.Run = text
	switch {
	case failed != nil:
		return step, nil, failed
	case out.At != nil:
		step.Value = &core.Value{Size: out.At.Size, Type: out.Type}
		return step, out.At, nil
	case len(out.Body) == 0:
		return step, nil, nil
	case len(out.Body) <= MaxInline && json.Valid(out.Body):
		step.Data = out.Body
		return step, nil, nil
	}
	extent, err := d.r.values.put(ctx, out.Body)
	if err != nil {
		return step, nil, err
	}
	step.Value = &core.Value{Size: extent.Size, Type: out.Type}
	return step, &extent, nil
}

// toStepError converts an error of a call to an error of the DSL.
func toStepError(err error) *dsl.Error {
	if e, ok := errors.AsType[*dsl.Error](err); ok {
		known := *e
		known.Detail = truncate(known.Detail)
		return &known
	}
	e := &dsl.Error{Type: dsl.ErrorCommunication, Status: 502, Title: "the call failed", Detail: truncate(err.Error())}
	switch outboard.KindOf(err) {
	case outboard.Invalid:
		e.Type, e.Status = dsl.ErrorValidation, 400
	case outboard.NotFound:
		e.Type, e.Status = dsl.ErrorConfiguration, 404
	case outboard.Denied:
		e.Status = 403
	case outboard.Conflict:
		e.Status = 409
	case outboard.Unreachable, outboard.SessionLost:
		e.Status = 503
	case outboard.Exhausted:
		e.Type, e.Status, e.Title = dsl.ErrorRuntime, 507, "a limit was reached"
	default:
		if errors.Is(err, context.DeadlineExceeded) {
			e.Type, e.Status, e.Title = dsl.ErrorTimeout, 408, "timeout"
		}
	}
	return e
}
