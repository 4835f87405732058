package tenant

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// invoker calls functions and starts executions for the gateway: it implements
// gateway.Invoker.
type invoker struct{ tenant *Tenant }

// Invoke implements gateway.Invoker.
func (i *invoker) Invoke(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
	v := i.tenant.apps.Current(c.App)
	if v == nil {
		return gateway.Answer{}, i.tenant.apps.Unavailable(c.App)
	}
	if c.Workflow != "" {
		return i.startExecution(ctx, c)
	}
	f := v.Functions[c.Function]
	if f == nil {
		return gateway.Answer{}, outboard.Errorf(outboard.NotFound, "", "app %s has no function %q: it has %s", c.App, c.Function, list(v.Functions))
	}
	p, err := f.run(ctx, function.Request{Entry: f.spec.Entry, Body: c.Body, Stream: c.Stream, Meta: metaOf(&c), Resources: f})
	return gateway.Answer{
		Body: p.Body, Streamed: p.Streamed, Message: c.HTTP, ID: "", Fuel: p.Cost.Fuel, Stdout: p.Stdout.Text, Stderr: p.Stderr.Text,
	}, err
}

// metaOf returns the metadata that a function can read. A guest that takes HTTP messages reads
// from it whether the request is one.
func metaOf(c *gateway.Call) func(string) (string, bool) {
	if !c.HTTP {
		return c.Meta
	}
	meta := c.Meta
	return func(name string) (string, bool) {
		if name == "http" {
			return "1", true
		}
		if meta == nil {
			return "", false
		}
		return meta(name)
	}
}

// startExecution starts an execution, and waits for its output if the trigger does.
func (i *invoker) startExecution(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
	id, err := i.tenant.engine.Start(ctx, engine.StartRequest{
		App: c.App, Workflow: c.Workflow, Name: engine.ID(c.ID).Name(), Input: c.Body, Type: contentType(&c),
	})
	if err != nil {
		return gateway.Answer{ID: string(id)}, i.storageError(c, err)
	}
	if !c.Wait {
		return gateway.Answer{ID: string(id)}, nil
	}
	r, err := i.tenant.engine.Wait(ctx, id)
	if err != nil {
		return gateway.Answer{ID: string(id)}, err
	}
	return i.output(ctx, r)
}

// storageError replaces an error of the store by one that a client can act on: the request may
// be sent again later. The cause, which may name files of this machine, is logged.
func (i *invoker) storageError(c gateway.Call, err error) error {
	if outboard.KindOf(err) != outboard.Other || errors.Is(err, engine.ErrNotFound) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	i.tenant.log.Error("an execution was not recorded", "app", c.App, "workflow", c.Workflow, "error", err)
	if full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), "no space") || strings.Contains(err.Error(), "insufficient"); full {
		return &outboard.Error{Op: "start " + c.App + "/" + c.Workflow, Kind: outboard.Exhausted, Err: fullError{}}
	}
	return outboard.Errorf(outboard.Unreachable, "start "+c.App+"/"+c.Workflow, "the pool's state can't record it at the moment: try again later")
}

// fullError is the error of writing to the pool's state when it has no space left.
type fullError struct{}

func (fullError) Error() string { return "the pool's state has no space left: try again later" }

// LimitName returns the name of the limit, for gateway.Status.
func (fullError) LimitName() string { return "storage" }

// contentType returns the media type of a call's body; "" if it has none, as those of messages and
// schedules.
func contentType(c *gateway.Call) string {
	if c.Meta == nil {
		return ""
	}
	if text, ok := c.Meta("content-type"); ok {
		return text
	}
	return ""
}

// output converts the result of an execution to an answer.
func (i *invoker) output(ctx context.Context, r engine.Result) (gateway.Answer, error) {
	a := gateway.Answer{ID: string(r.ID)}
	switch {
	case r.Error != nil:
		return a, outboard.Errorf(outboard.Other, "execution "+a.ID, "%w", r.Error)
	case r.Status != core.Completed:
		return a, outboard.Errorf(outboard.SessionLost, "execution "+a.ID, "it was %s", r.Status)
	case r.Value != nil:
		body, err := i.tenant.values.Fetch(ctx, r.ID, *r.Value)
		a.Body, a.Type = body, r.Value.Type
		return a, err
	}
	a.Body, a.Type = r.Output, "application/json"
	return a, nil
}
