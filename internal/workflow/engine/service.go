package engine

import (
	"context"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// callService starts a call of a service outside of the app.
func (d stepDriver) callService(c core.ServiceCall, at time.Time) {
	r := d.r
	d.start(c.Path, c.Protocol, at, func(ctx context.Context) (Outcome, error) {
		if r.e.opts.Services == nil {
			return Outcome{}, &dsl.Error{Type: dsl.ErrorConfiguration, Status: 501, Title: "calls of services are not available here"}
		}
		call := ServiceCall{Execution: r.id, Path: c.Path, App: r.id.App(), Version: r.version, Protocol: c.Protocol, Timeout: c.Task.Timeout}
		if err := r.values.serviceRequest(ctx, c.With, &call); err != nil {
			return Outcome{}, err
		}
		return callUnlessBusy(ctx, r.e.opts.Services, call)
	})
}

// callUnlessBusy calls a service, and tries again as long as too many requests are in flight, so
// that nothing was sent. A request that was sent is not sent again: retries are the workflow's, so
// that they are recorded.
func callUnlessBusy(ctx context.Context, s Services, call ServiceCall) (Outcome, error) {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		out, err := s.CallService(ctx, call)
		if outboard.KindOf(err) != outboard.Busy || !sleep(ctx, pause) {
			return out, err
		}
	}
}

// serviceRequest sets a call's arguments. A body that is a reference is passed by its location.
func (v *values) serviceRequest(ctx context.Context, with any, to *ServiceCall) error {
	to.With, _ = with.(map[string]any)
	ref, ok := v.reference(to.With["body"])
	if !ok {
		return nil
	}
	at, held, err := v.locateValue(ctx, ref)
	if err != nil {
		return err
	}
	to.At, to.Type = &at, held.value.Type
	return nil
}
