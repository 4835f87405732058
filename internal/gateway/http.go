package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
)

// ServeHTTP answers a request for an app.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	applyForwardedClient(r)
	if !g.servesHost(r.Host) {
		misdirected(r.Host).Write(w)
		return
	}
	if app := g.table.Load().apps[AppOf(r.URL.Path)]; app != nil {
		app.routes.ServeHTTP(w, r)
		return
	}
	g.opts.Elsewhere.ServeHTTP(w, r)
}

// servesHost reports whether requests for a host are served. The pages of an attacker whose host
// name resolves to this machine (DNS rebinding) send that name.
func (g *Gateway) servesHost(host string) bool {
	name := host
	if end := strings.LastIndexByte(name, ':'); end >= 0 && !strings.HasSuffix(name, "]") {
		name = name[:end]
	}
	name = strings.TrimSuffix(name, ".")
	if len(g.opts.Hosts) == 0 {
		// Every name is served, but the names of other tenants stay origins of their own.
		label, local := strings.CutSuffix(strings.ToLower(name), ".localhost")
		return !local || label == g.opts.Tenant
	}
	for _, allowed := range g.opts.Hosts {
		if strings.EqualFold(name, allowed) {
			return true
		}
		if below, ok := strings.CutPrefix(allowed, "*"); ok && strings.EqualFold(name, g.opts.Tenant+below) {
			return true
		}
	}
	return false
}

func misdirected(host string) Problem {
	return problem(http.StatusMisdirectedRequest, fmt.Sprintf("host %q is not served here: `outboard up --http-host NAME` adds a name", clip([]byte(host))))
}

// Serves reports whether an app has routes that take requests.
func (g *Gateway) Serves(app string) bool { return g.table.Load().apps[app] != nil }

// ClientHeader carries the client's address on requests that another process forwards over a
// unix socket. Functions do not see it.
const ClientHeader = "Outboard-Client"

// applyForwardedClient sets the client's address of a forwarded request. Requests that came by TCP
// keep their own: only a process of the node's user can connect to the socket.
func applyForwardedClient(r *http.Request) {
	if r.RemoteAddr != "" && r.RemoteAddr != "@" {
		return
	}
	if clients := r.Header[ClientHeader]; len(clients) == 1 {
		r.RemoteAddr = clients[0]
	}
	delete(r.Header, ClientHeader)
}

// handler serves one route of one table.
type handler struct {
	*Route
	gateway *Gateway
	state   *appState
	name    string // its pattern, without the app
	params  []string
	maxBody outboard.Bytes
	metric  *routeMetric
}

func (g *Gateway) handlerOf(a *App, r *Route, name string) http.Handler {
	h := &handler{
		Route: r, gateway: g, state: g.stateOf(a.Name), name: name, params: paramsOf(r.Path),
		maxBody: r.MaxBody, metric: g.metrics.route(a.Name, name),
	}
	if h.maxBody == 0 {
		h.maxBody = g.opts.MaxBody
	}
	if r.WebSocket {
		return http.HandlerFunc(h.serveSocket)
	}
	return h
}

// paramsOf returns the names in a pattern's braces.
func paramsOf(pattern string) []string {
	var names []string
	for segment := range strings.SplitSeq(pattern, "/") {
		name, ok := strings.CutPrefix(segment, "{")
		if name, closed := strings.CutSuffix(name, "}"); ok && closed && name != "$" {
			names = append(names, strings.TrimSuffix(name, "..."))
		}
	}
	return names
}

// acquireCall admits a call, until releaseCall.
func (g *Gateway) acquireCall(s *appState) error {
	if !g.inFlight.tryAcquire() {
		return outboard.Errorf(outboard.Busy, "call "+s.name, "%d calls are in progress on this node: call again later", g.opts.Calls)
	}
	if !s.inFlight.tryAcquire() {
		g.inFlight.release()
		return outboard.Errorf(outboard.Busy, "call "+s.name, "%d calls of this app are in progress on this node: call again later", s.inFlight.limit.Load())
	}
	return nil
}

func (g *Gateway) releaseCall(s *appState) {
	s.inFlight.release()
	g.inFlight.release()
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	g := h.gateway
	if err := g.acquireCall(h.state); err != nil {
		h.metric.count(refuse(w, NewProblem(err)), time.Since(begin))
		return
	}
	defer g.releaseCall(h.state)
	x := g.server.exchanges.get()
	defer g.server.exchanges.put(x)
	x.w, x.r, x.h, x.response.app = w, r, h, h.state.name
	x.run(begin)
}

func refuse(w http.ResponseWriter, p Problem) int {
	p.Write(w)
	return p.Status
}

// exchange is one request with its response. Exchanges are pooled.
type exchange struct {
	w        http.ResponseWriter
	r        *http.Request
	h        *handler
	span     trace.SpanContext
	input    []byte
	response response
	stream   stream
	reserved int64                       // bytes of the gateway's budget
	metaFunc func(string) (string, bool) // its method meta
}

func (x *exchange) run(begin time.Time) {
	g := x.h.gateway
	defer func() { g.opts.Buffers.Release(x.reserved) }()
	call := Call{
		App: x.h.state.name, Function: x.h.Function, Workflow: x.h.Workflow, Wait: x.h.Wait, HTTP: x.h.HTTP,
		Meta: x.metaFunc, Trigger: HTTP, Route: x.h.name,
	}
	ctx, span := g.trace(x.r.Context(), &call, x.r.Header)
	x.span = traceOf(ctx)
	if err := x.readInput(&call); err != nil {
		endSpan(span, err, statusOfBody(err))
		x.h.metric.count(x.refuseBody(err), time.Since(begin))
		return
	}
	defer x.stream.discard()
	answer, err := g.opts.Invoker.Invoke(ctx, call)
	defer answer.release()
	answer.started(&call)
	status, err, cut := x.answer(&answer, err)
	took := time.Since(begin)
	x.h.metric.count(status, took)
	g.record(outcome{
		call: &call, answer: &answer, err: err, status: status, begin: begin, took: took, span: span, trace: x.span, ring: x.h.state.ring,
	})
	if cut {
		x.stream.reading = false
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a response that is not complete
	}
}

// readInput reads the call's body.
func (x *exchange) readInput(call *Call) (err error) {
	if x.h.Streams {
		if err := x.openStream(call); err != nil || x.stream.reading {
			return err
		}
	}
	x.reserveInput()
	_, buffered := x.r.Body.(*plainBody)
	slow := x.r.ContentLength != 0 && !buffered && x.r.Body != nil
	if body := x.r.Body; slow {
		x.r.Body = x.pace(body)
		defer func() { x.r.Body = body }() // net/http knows its own body by the type
	}
	if x.h.HTTP {
		x.input, err = appendMessage(x.input[:0], x.r, x.h.state.name, x.span, x.h.maxBody, x.reserve)
	} else {
		x.input, err = appendBody(x.input[:0], x.r, x.h.maxBody, x.reserve)
	}
	if slow && err == nil {
		err = checkTrailers(x.r)
	}
	call.Body = x.input
	return err
}

// reserve reserves bytes for the request's body.
func (x *exchange) reserve(n int64) error {
	if err := x.h.gateway.opts.Buffers.TryReserve(n); err != nil {
		return err
	}
	x.reserved += n
	return nil
}

// reserveInput reserves the capacity that the input has from an earlier exchange. If the budget has
// no room for it, the input starts small again.
func (x *exchange) reserveInput() {
	if n := cap(x.input); n > growth && x.reserve(int64(n)) != nil {
		x.input = newInput()
	}
}

func statusOfBody(err error) int {
	if wrong, ok := errors.AsType[*bodyError](err); ok {
		return wrong.status
	}
	if outboard.KindOf(err) == outboard.Busy {
		return Status(err)
	}
	return http.StatusBadRequest
}

// refuseBody answers a request whose body can't be read. The rest of the body is not read.
func (x *exchange) refuseBody(err error) int {
	x.w.Header().Set("Connection", "close")
	p := problem(statusOfBody(err), err.Error())
	if outboard.KindOf(err) == outboard.Busy {
		p = NewProblem(err)
	}
	p.Trace = x.span.TraceID().String()
	return refuse(x.w, p)
}

// answer sends the result of a call, or the rest of it. It returns the status, the error, and
// whether the connection must be cut since the response is incomplete.
func (x *exchange) answer(a *Answer, err error) (status int, failure error, cut bool) {
	switch s := &x.stream; {
	case s.started:
		return s.finish(err)
	case s.readErr != nil: // the function could not read the whole request
		return x.refuseBody(s.readErr), s.readErr, false
	case err == nil && a.Streamed: // and no part of the response was sent
		err = s.err
		if err == nil {
			err = errNothing
		}
		err = outboard.Errorf(outboard.Protocol, x.op(), "%w", err)
	}
	status, failure = x.answerWhole(a, err)
	return status, failure, false
}

// answerWhole sends the result of a call that sent no part of it itself.
func (x *exchange) answerWhole(a *Answer, err error) (int, error) {
	switch {
	case err != nil:
		return x.fail(err), err
	case a.Message:
		return x.answerMessage(a.Body)
	case x.h.HTTP:
		err := outboard.Errorf(outboard.Protocol, x.op(), "the function did not answer with a message")
		return x.fail(err), err
	case len(a.Body) == 0:
		err := outboard.Errorf(outboard.Protocol, x.op(), "the function returned nothing")
		return x.fail(err), err
	}
	return x.answerBody(a)
}

func (x *exchange) op() string { return "call " + x.h.state.name + " " + x.h.name }

// fail answers with a problem, and returns the status for logs and metrics.
func (x *exchange) fail(err error) int {
	p := NewProblem(err)
	status := p.Status
	if status == statusGone {
		p = problem(http.StatusServiceUnavailable, p.Detail) // a client may still be there
		if x.r.Context().Err() == nil {
			status = p.Status // the call was cancelled, and not by the client
		}
	}
	p.Trace = x.span.TraceID().String()
	p.Write(x.w)
	return status
}

func (x *exchange) answerMessage(message []byte) (int, error) {
	if err := x.response.parse(message, x.r.Method); err != nil {
		err = outboard.Errorf(outboard.Protocol, x.op(), "%w", err)
		return x.fail(err), err
	}
	// A client that disconnected is not a failure of the function.
	_ = x.response.write(x.w, x.r.Method)
	return x.response.status, nil
}

func (x *exchange) answerBody(a *Answer) (int, error) {
	status := http.StatusOK
	if x.h.Workflow != "" && !x.h.Wait {
		status = http.StatusAccepted
	}
	if w, ok := x.w.(*reply); ok {
		w.writeWhole(status, typeOf(a), a.Body)
		return status, nil
	}
	h := x.w.Header()
	h["Content-Type"] = []string{typeOf(a)}
	h["Content-Length"] = []string{strconv.Itoa(len(a.Body))}
	x.w.WriteHeader(status)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write(a.Body)
	}
	return status, nil
}

// sniffed bounds the bodies that are checked for JSON.
const sniffed = 64 << 10

// typeOf returns an answer's media type.
func typeOf(a *Answer) string {
	switch text := bytes.TrimLeft(a.Body[:min(len(a.Body), 64)], " \t\r\n"); {
	case a.Type != "" && validValue([]byte(a.Type)):
		return a.Type
	case len(text) > 0 && (text[0] == '{' || text[0] == '[') && len(a.Body) <= sniffed && json.Valid(a.Body):
		return "application/json"
	}
	return http.DetectContentType(a.Body)
}

// meta implements Call.Meta.
func (x *exchange) meta(name string) (string, bool) {
	if name == matchName {
		return x.match()
	}
	if value, ok := requestMeta(x.r, x.h.name, name); ok {
		return value, true
	}
	if value, isTrailer, ok := trailerMeta(x.r, name); isTrailer {
		return value, ok
	}
	if name == "trace" {
		return x.span.TraceID().String(), true
	}
	return paramOrHeader(x.r, x.h.params, name)
}

// matchName is the name of what a function that takes HTTP messages needs of a request beside the
// message, in one value: the route, the values of its parameters in the route's order, and the lengths
// of the parts of the message's head (appendLengths), each after a line break. It is absent if a value
// has a line break.
const matchName = "http.route"

func (x *exchange) match() (string, bool) {
	if !x.h.HTTP {
		return "", false
	}
	var match strings.Builder
	match.WriteString(x.h.name)
	for _, name := range x.h.params {
		value := x.r.PathValue(name)
		if strings.IndexByte(value, '\n') >= 0 {
			return "", false
		}
		match.WriteString("\n" + value)
	}
	match.WriteByte('\n')
	var lengths [3 * (maxPlainFields / 4)]byte
	match.Write(appendLengths(lengths[:0], x.input))
	return match.String(), true
}

func requestMeta(r *http.Request, route, name string) (string, bool) {
	switch name {
	case "method":
		return r.Method, true
	case "path":
		return strings.TrimPrefix(r.URL.Path, "/"+AppOf(r.URL.Path)), true
	case "query":
		return r.URL.RawQuery, true
	case "route":
		return route, true
	case "remote":
		return r.RemoteAddr, true
	case "host", "Host":
		return r.Host, true
	}
	return "", false
}

func paramOrHeader(r *http.Request, params []string, name string) (string, bool) {
	if slices.Contains(params, name) {
		return r.PathValue(name), true
	}
	if reserved(name) {
		return "", false
	}
	values := r.Header.Values(name)
	return strings.Join(values, ", "), len(values) > 0
}

// reserved reports whether a name belongs to the gateway or the invoker: no client can set it with
// a header field.
func reserved(name string) bool {
	switch strings.ToLower(name) {
	case "method", "path", "query", "route", "remote", "host", "trace", "trailers", "subject", "tick", "app", "call", "trigger", "execution", "step":
		return true
	}
	return strings.Contains(name, ".")
}

// exchangePool pools exchanges.
type exchangePool struct{ pool sync.Pool }

// keptBuffer bounds the buffers that are pooled.
const keptBuffer = 1 << 20

func (p *exchangePool) get() *exchange {
	if x, ok := p.pool.Get().(*exchange); ok {
		return x
	}
	x := &exchange{input: newInput()}
	x.metaFunc = x.meta
	return x
}

func newInput() []byte { return make([]byte, 0, 4<<10) }

func (p *exchangePool) put(x *exchange) {
	if cap(x.input) > keptBuffer {
		return
	}
	x.stream = stream{head: x.stream.head[:0]}
	clear(x.response.fields) // they point into a released answer
	x.w, x.r, x.h, x.response.body, x.reserved = nil, nil, nil, nil, 0
	p.pool.Put(x)
}
