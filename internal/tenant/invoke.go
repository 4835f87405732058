package tenant

import (
	"context"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// Invoke implements gateway.Invoker.
func (t *Tenant) Invoke(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
	v := t.current(c.App)
	if v == nil {
		return gateway.Answer{}, t.missing(c.App)
	}
	if c.Workflow != "" {
		return t.startByTrigger(ctx, c)
	}
	f := v.functions[c.Function]
	if f == nil {
		return gateway.Answer{}, outboard.Errorf(outboard.NotFound, "", "app %s has no function %q: it has %s", c.App, c.Function, list(v.functions))
	}
	p, err := f.run(ctx, function.Request{Entry: f.spec.Entry, Body: c.Body, Meta: metaOf(&c), Resources: f})
	return gateway.Answer{
		Body: p.Body, Message: c.HTTP, ID: "", Fuel: p.Cost.Fuel, Stdout: p.Stdout.Text, Stderr: p.Stderr.Text,
	}, err
}

// run calls the function and counts it.
func (d *deployed) run(ctx context.Context, q function.Request) (function.Response, error) {
	p, err := d.Call(ctx, q)
	d.meter.end(p.Cost.Ran, err)
	return p, err
}

// metaOf is what a function may ask about its request. A guest that takes HTTP
// messages asks whether this is one.
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

// startByTrigger starts an execution, and waits for it where the trigger does.
func (t *Tenant) startByTrigger(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
	id, err := t.engine.Start(ctx, engine.StartRequest{App: c.App, Workflow: c.Workflow, Input: c.Body, Type: contentType(&c)})
	if err != nil {
		return gateway.Answer{}, err
	}
	if !c.Wait {
		return gateway.Answer{ID: string(id)}, nil
	}
	r, err := t.engine.Wait(ctx, id)
	if err != nil {
		return gateway.Answer{ID: string(id)}, err
	}
	return t.output(ctx, r)
}

func contentType(c *gateway.Call) string {
	if c.Meta == nil {
		return ""
	}
	text, _ := c.Meta("content-type")
	return text
}

// output is how an execution ended, as an answer.
func (t *Tenant) output(ctx context.Context, r engine.Result) (gateway.Answer, error) {
	a := gateway.Answer{ID: string(r.ID)}
	switch {
	case r.Error != nil:
		return a, outboard.Errorf(outboard.Other, "execution "+a.ID, "%w", r.Error)
	case r.Status != core.Completed:
		return a, outboard.Errorf(outboard.SessionLost, "execution "+a.ID, "it was %s", r.Status)
	case r.Value != nil:
		body, err := t.values.bytes(ctx, r.ID, *r.Value)
		a.Body, a.Type = body, r.Value.Type
		return a, err
	}
	a.Body, a.Type = r.Output, "application/json"
	return a, nil
}
