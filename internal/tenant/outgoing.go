package tenant

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/quota"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/outgoing"
)

// egressOpener opens the clients for the outgoing requests of a tenant's process.
type egressOpener struct{ tenant *Tenant }

func (o *egressOpener) open(context.Context) (lifecycle.Resource, error) {
	t := o.tenant
	var err error
	t.egress, err = egress.New(egress.Options{
		Private: t.config.OutgoingPrivate, Budget: t.account.Budget(quota.Requests), Registerer: t.metrics,
	})
	t.grpc = &grpcCaller{tenant: t, conn: func() grpc.ClientConnInterface { return t.peers.Conn() }}
	return closer(t.grpc.close), err
}

// outgoingClients holds an app's client of outgoing requests for the allow-list used last: versions
// rarely differ in it.
type outgoingClients struct {
	egress *egress.Egress
	app    string

	mu    sync.Mutex
	hosts []egress.Host
	last  *egress.Client
	calls *outgoing.Caller
}

// client returns the client for an allow-list.
func (o *outgoingClients) client(hosts []egress.Host) *egress.Client {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.clientLocked(hosts)
}

// clientLocked is client. Locks: o.mu is held.
func (o *outgoingClients) clientLocked(hosts []egress.Host) *egress.Client {
	if o.last == nil || !slices.Equal(o.hosts, hosts) {
		o.closeLast()
		o.last, o.hosts, o.calls = o.egress.Client(o.app, hosts), hosts, nil
	}
	return o.last
}

// caller returns the caller of workflows for an allow-list.
func (o *outgoingClients) caller(hosts []egress.Host, secret func(string) ([]byte, error)) *outgoing.Caller {
	o.mu.Lock()
	defer o.mu.Unlock()
	client := o.clientLocked(hosts) // with the caller under one lock: another version may replace both
	if o.calls == nil {
		o.calls = outgoing.New(client, secret)
	}
	return o.calls
}

func (o *outgoingClients) closeLast() {
	if o.last != nil {
		_ = o.last.Close() // it drops only unused connections
	}
}

func (o *outgoingClients) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLast()
}

// CallService implements engine.Services.
func (s *steps) CallService(ctx context.Context, c engine.ServiceCall) (engine.Outcome, error) {
	began := time.Now()
	v, err := s.tenant.apps.Acquire(ctx, c.App, c.Version)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer release(v)
	if c.Protocol == dsl.GRPC {
		return s.tenant.grpc.call(ctx, c)
	}
	req := outgoing.Request{Protocol: c.Protocol, With: c.With, Type: c.Type, Key: c.Key(), Timeout: c.Timeout}
	if c.At != nil {
		req.Stored = true
		if req.Body, err = s.tenant.values.slice(c.Execution, *c.At); err != nil {
			return engine.Outcome{}, err
		}
	}
	resources := v.Resources.(*appResources) //nolint:errcheck,forcetypeassert // NewResources returned it
	result, err := resources.outgoing.caller(v.Spec.Outgoing, resources.secret).Call(ctx, req)
	return engine.Outcome{
		Body: result.Body, Type: result.Type,
		Run: engine.Run{Node: string(s.tenant.config.Node), Began: began, Took: time.Since(began), Copied: int64(len(req.Body) + len(result.Body))},
	}, err
}

// secret returns a secret of the app.
func (r *appResources) secret(name string) ([]byte, error) {
	found, err := r.Secret(name)
	if err != nil {
		return nil, err
	}
	defer found.Release()
	return found.(function.Secret).Bytes(), nil //nolint:errcheck,forcetypeassert // Secret returns one
}

// workflowRules returns the rules for the workflows of an app.
func workflowRules(spec *manifest.App, unknown func(string) string) dsl.Rules {
	return dsl.Rules{
		Function: unknown,
		Host: func(scheme, host string) string {
			if err := egress.Check(spec.Outgoing, scheme, host); err != nil {
				return fmt.Sprintf("%v; to allow it add to the manifest: outgoing: [%q]", err, host)
			}
			return ""
		},
		Service: func(name string) string {
			if !slices.Contains(spec.Services, name) {
				return fmt.Sprintf("the app may not call the service %s: to allow it add to the manifest: outgoing: [{service: %s}]", name, name)
			}
			return ""
		},
		Secret: func(name string) string {
			if _, ok := spec.Secrets[name]; !ok {
				return fmt.Sprintf("the app has no secret %q: add it to the manifest, as in: secrets: {%s: {env: VARIABLE}}", name, name)
			}
			return ""
		},
	}
}

// importedHosts returns the hosts to which a function may send requests.
func importedHosts(app *manifest.App, spec manifest.Function) []egress.Host {
	var hosts []egress.Host
	for _, h := range app.Outgoing {
		if slices.Contains(spec.Imports, manifest.Import{Kind: manifest.ImportOutgoing, Name: h.String()}) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// outgoingHost returns the resource by which the function sends requests to a host, "NAME" or
// "NAME:PORT".
func (d *deployed) outgoingHost(host string) (function.Resource, error) {
	if egress.Check(d.outgoing, "https", host) != nil && egress.Check(d.outgoing, "http", host) != nil {
		return nil, outboard.Errorf(outboard.Denied, "",
			"function %s may not send requests to %s: add \"- outgoing: %s\" to functions.%s.imports, and the host to outgoing, in the manifest of app %s",
			d.name, host, host, d.name, d.version.Spec.Name)
	}
	return &outgoingResource{hosts: d.outgoing, client: d.resources.outgoing.client(d.version.Spec.Outgoing)}, nil
}

// outgoingResource sends the requests of a function: it implements function.Callee. A request is an
// HTTP/1.1 message whose target is a URI; so is the response, with its whole body.
type outgoingResource struct {
	hosts  []egress.Host // of the function
	client *egress.Client
}

// Release implements function.Resource.
func (*outgoingResource) Release() {}

// Call implements function.Callee.
func (r *outgoingResource) Call(ctx context.Context, q function.Request) (function.Response, error) {
	message := q.Body
	if q.Place != nil {
		var err error
		if message, err = q.Arena.Slice(*q.Place); err != nil {
			return function.Response{}, err
		}
	}
	// The guest's memory may change while the request is sent.
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.Clone(message))))
	if err != nil {
		return function.Response{}, outboard.Errorf(outboard.Invalid, "", "read the request: %w", err)
	}
	request.RequestURI = ""
	for _, name := range []string{"Connection", "Upgrade", "Te", "Trailer", "Proxy-Authorization", "Proxy-Connection", "Keep-Alive"} {
		request.Header.Del(name)
	}
	if err := egress.Check(r.hosts, request.URL.Scheme, request.URL.Host); err != nil {
		return function.Response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, outgoing.DefaultTimeout)
	defer cancel()
	resp, err := r.client.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return function.Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, outgoing.MaxResponse+1))
	if err == nil && len(body) > outgoing.MaxResponse {
		err = outboard.Errorf(outboard.Exhausted, "", "the response is larger than %v", outboard.Bytes(outgoing.MaxResponse))
	}
	if err != nil {
		return function.Response{}, err
	}
	text, err := responseMessage(resp, request.Method == http.MethodHead, body)
	return function.Response{Body: text}, err
}

// responseMessage returns a response as an HTTP/1.1 message with its length.
func responseMessage(resp *http.Response, head bool, body []byte) ([]byte, error) {
	var b bytes.Buffer
	if resp.StatusCode < 100 || resp.StatusCode > 999 {
		return nil, errors.New("the status of the response is invalid")
	}
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	header := resp.Header.Clone()
	header.Del("Transfer-Encoding")
	if !head { // a response to HEAD has the length of the body of GET
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	if err := header.Write(&b); err != nil {
		return nil, err
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes(), nil
}
