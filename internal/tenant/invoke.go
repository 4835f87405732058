package tenant

import (
	"context"

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
	p, err := f.run(ctx, function.Request{Entry: f.spec.Entry, Body: c.Body, Meta: metaOf(&c), Resources: f})
	return gateway.Answer{
		Body: p.Body, Message: c.HTTP, ID: "", Fuel: p.Cost.Fuel, Stdout: p.Stdout.Text, Stderr: p.Stderr.Text,
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

// startExecution starts an execution, and waits for its output where the trigger does.
func (i *invoker) startExecution(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
	id, err := i.tenant.engine.Start(ctx, engine.StartRequest{App: c.App, Workflow: c.Workflow, Input: c.Body, Type: contentType(&c)})
	if err != nil {
		return gateway.Answer{}, err
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

func contentType(c *gateway.Call) string {
	if c.Meta == nil {
		return ""
	}
	text, _ := c.Meta("content-type")
	return text
}

// output is the result of an execution as an answer.
func (i *invoker) output(ctx context.Context, r engine.Result) (gateway.Answer, error) {
	a := gateway.Answer{ID: string(r.ID)}
	switch {
	case r.Error != nil:
		return a, outboard.Errorf(outboard.Other, "execution "+a.ID, "%w", r.Error)
	case r.Status != core.Completed:
		return a, outboard.Errorf(outboard.SessionLost, "execution "+a.ID, "it was %s", r.Status)
	case r.Value != nil:
		body, err := i.tenant.values.bytes(ctx, r.ID, *r.Value)
		a.Body, a.Type = body, r.Value.Type
		return a, err
	}
	a.Body, a.Type = r.Output, "application/json"
	return a, nil
}
