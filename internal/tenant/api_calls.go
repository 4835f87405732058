package tenant

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/nats-io/nuid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/gateway"
)

// callsAPI is the part of the local API that calls functions.
type callsAPI struct {
	apps    *deployments
	gateway *gateway.Gateway
	self    outboard.NodeID
}

func (a *callsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/apps/{app}/functions/{function}", a.postCall)
}

// postCall calls a function.
func (a *callsAPI) postCall(w http.ResponseWriter, r *http.Request) {
	body, err := bodyOf(r)
	if err != nil {
		api.Refuse(w, err)
		return
	}
	app, name := r.PathValue("app"), r.PathValue("function")
	v, err := a.apps.AwaitCurrent(r.Context(), app)
	if err != nil {
		api.Refuse(w, err)
		return
	}
	f := v.Functions[name]
	if f == nil {
		api.Refuse(w, outboard.Errorf(outboard.NotFound, "", "app %s has no function %q: it has %s", app, name, list(v.Functions)))
		return
	}
	a.call(w, r, f, body)
}

func (a *callsAPI) call(w http.ResponseWriter, r *http.Request, f *deployed, body []byte) {
	began, id := time.Now(), nuid.Next()
	q := function.Request{Entry: f.spec.Entry, Body: body, Resources: f, Meta: func(name string) (string, bool) {
		if name == "content-type" {
			return r.Header.Get("Content-Type"), r.Header.Get("Content-Type") != ""
		}
		return "", false
	}}
	if f.http {
		q.Body, q.Meta = asMessage(r, body), httpMeta
	}
	p, err := f.run(r.Context(), q)
	a.gateway.Log(gateway.Record{
		App: f.version.Spec.Name, Target: f.name, Call: id, Trigger: gateway.Invoke, Begin: began, Took: time.Since(began),
		Err: err, Fuel: p.Cost.Fuel, Stdout: p.Stdout.Text, Stderr: p.Stderr.Text,
	})
	if err != nil {
		api.Refuse(w, err)
		return
	}
	answer, status := p.Body, 0
	if f.http {
		if status, answer, err = ofMessage(answer); err != nil {
			api.Refuse(w, err)
			return
		}
	}
	cost, err := json.Marshal(a.costOf(id, f, p, status))
	if err != nil {
		api.Refuse(w, err)
		return
	}
	w.Header().Set(client.CallHeader, string(cost))
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(answer) // the client hung up
}

// asMessage wraps a body in a request message for an HTTP function.
func asMessage(r *http.Request, body []byte) []byte {
	kind := r.Header.Get("Content-Type")
	if kind == "" {
		kind = "application/octet-stream"
	}
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, len(body))
	return append([]byte(head), body...)
}

// ofMessage unwraps an HTTP function's response message.
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

func (a *callsAPI) costOf(id string, f *deployed, p function.Response, status int) client.CallCost {
	c := client.CallCost{
		Call: id, Node: a.self, Start: startName(p.Cost.Start), Took: client.Duration(p.Cost.Ran),
		Fuel: p.Cost.Fuel, Memory: p.Cost.Memory, Status: status,
	}
	for _, i := range p.Imports {
		c.Imports = append(c.Imports, client.ImportUse{
			Name: i.Name, Shared: f.imports[i.Name].Share, Calls: i.Calls, Took: client.Duration(i.Time), Waited: client.Duration(i.Waited), Bytes: outboard.Bytes(i.Pointer + i.Copied),
		})
	}
	return c
}
