package tenant

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/gateway"
)

// postCall calls a function by hand.
func (t *Tenant) postCall(w http.ResponseWriter, r *http.Request) {
	body, err := bodyOf(r)
	if err != nil {
		api.Refuse(w, err)
		return
	}
	app, name := r.PathValue("app"), r.PathValue("function")
	v, err := t.awaitCurrent(r.Context(), app)
	if err != nil {
		api.Refuse(w, err)
		return
	}
	f := v.functions[name]
	if f == nil {
		api.Refuse(w, outboard.Errorf(outboard.NotFound, "", "app %s has no function %q: it has %s", app, name, list(v.functions)))
		return
	}
	t.callByHand(w, r, f, body)
}

func (t *Tenant) callByHand(w http.ResponseWriter, r *http.Request, f *deployed, body []byte) {
	began, id := time.Now(), newID()
	q := function.Request{Entry: f.spec.Entry, Body: body, Resources: f, Meta: func(name string) (string, bool) {
		if name == "content-type" {
			return r.Header.Get("Content-Type"), r.Header.Get("Content-Type") != ""
		}
		return "", false
	}}
	if f.spec.HTTP {
		q.Body, q.Meta = asMessage(r, body), httpMeta
	}
	p, err := f.run(r.Context(), q)
	t.gateway.Log(gateway.Record{
		App: f.version.spec.Name, Target: f.name, Call: id, Trigger: gateway.Invoke, Begin: began, Took: time.Since(began),
		Err: err, Fuel: p.Cost.Fuel, Stdout: p.Stdout.Text, Stderr: p.Stderr.Text,
	})
	if err != nil {
		api.Refuse(w, err)
		return
	}
	answer, status := p.Body, 0
	if f.spec.HTTP {
		if status, answer, err = ofMessage(answer); err != nil {
			api.Refuse(w, err)
			return
		}
	}
	cost, err := json.Marshal(t.costOf(id, f, p, status))
	if err != nil {
		api.Refuse(w, err)
		return
	}
	w.Header().Set(client.CallHeader, string(cost))
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(answer) // the client hung up
}

// asMessage is a body as an HTTP function takes it.
func asMessage(r *http.Request, body []byte) []byte {
	kind := r.Header.Get("Content-Type")
	if kind == "" {
		kind = "application/octet-stream"
	}
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, len(body))
	return append([]byte(head), body...)
}

// ofMessage is what an HTTP function answered.
func ofMessage(answer []byte) (status int, body []byte, err error) {
	p, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
	if err != nil {
		return 0, nil, outboard.Errorf(outboard.Protocol, "", "the function's answer is no HTTP message: %w", err)
	}
	defer p.Body.Close()
	body, err = io.ReadAll(p.Body)
	return p.StatusCode, body, err
}

func httpMeta(name string) (string, bool) { return "1", name == "http" }

func (t *Tenant) costOf(id string, f *deployed, p function.Response, status int) client.CallCost {
	c := client.CallCost{
		Call: id, Node: t.config.Node, Start: startName(p.Cost.Start), Took: client.Duration(p.Cost.Ran),
		Fuel: p.Cost.Fuel, Memory: p.Cost.Memory, Status: status,
	}
	for _, i := range p.Imports {
		c.Imports = append(c.Imports, client.ImportUse{
			Name: i.Name, Shared: f.imports[i.Name].Share, Calls: i.Calls, Took: client.Duration(i.Time), Waited: client.Duration(i.Waited), Bytes: outboard.Bytes(i.Pointer + i.Copied),
		})
	}
	return c
}

func (t *Tenant) lineOf(l gateway.Line) client.LogLine {
	if l.Time.IsZero() {
		l.Time = time.Now() // it is about lines that were lost
	}
	return client.LogLine{
		Time: l.Time, Node: t.config.Node, App: l.App, Function: l.Function, Call: l.Call, Execution: l.Execution, Step: l.Step,
		Stream: l.Stream, Text: l.Text, Trigger: string(l.Trigger), Status: l.Status, Took: client.Duration(l.Took), Fuel: l.Fuel,
	}
}
