package cli_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/artifact/artifacttest"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A fakeNode serves the parts of a node's API that are about apps, models and jobs, and runs
// nothing: its responses follow from the requests.
type fakeNode struct {
	store *artifact.Store

	mu         sync.Mutex
	apps       map[string]*fakeApp
	executions []client.Execution
	published  []client.LogLine
	puts       int // files that were copied to the node
	models     fakeModels
	jobs       fakeJobs
	pool       fakePool
}

type fakeApp struct {
	versions []manifest.App
	secrets  map[string][]byte
}

func (a *fakeApp) current() *manifest.App { return &a.versions[len(a.versions)-1] }

// fakeNodeMain is a program that is a fake node until it is told to end.
func fakeNodeMain() int {
	data := os.Getenv("OUTBOARD_DATA")
	store, err := artifact.Open(artifact.Options{Dir: filepath.Join(data, "artifacts")})
	if err != nil {
		return 1
	}
	l, err := unixsock.Listen(filepath.Join(data, client.SocketName))
	if err != nil {
		return 1
	}
	n := &fakeNode{store: store, apps: map[string]*fakeApp{}}
	return serveUntilEnd(l, n.handler())
}

// registryMain is a program that is a registry of OCI artifacts. It writes its host to a file.
func registryMain() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	if err := os.WriteFile(os.Args[1], []byte(l.Addr().String()), 0o600); err != nil {
		return 1
	}
	return serveUntilEnd(l, &artifacttest.Registry{})
}

func serveUntilEnd(l net.Listener, handler http.Handler) int {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-end
		_ = server.Close()
	}()
	_ = server.Serve(l)
	return 0
}

func (n *fakeNode) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			n.mu.Lock()
			out, err := f(r)
			n.mu.Unlock()
			if err != nil {
				w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
				out = client.FailureOf(err)
			}
			_ = json.NewEncoder(w).Encode(out)
		})
	}
	handle("POST /v1/apps", n.deploy)
	handle("GET /v1/apps", n.list)
	handle("GET /v1/functions", n.functions)
	handle("GET /v1/workflows", n.workflows)
	handle("GET /v1/apps/{app}/nodes", n.appNodes)
	handle("POST /v1/apps/{app}/rollback", n.rollback)
	handle("DELETE /v1/apps/{app}", n.remove)
	mux.HandleFunc("POST /v1/apps/{app}/functions/{function}", n.invoke)
	handle("POST /v1/apps/{app}/workflows/{workflow}/executions", n.run)
	handle("GET /v1/executions", n.listExecutions)
	handle("GET /v1/apps/{app}/executions/{id}", n.execution)
	handle("POST /v1/apps/{app}/executions/{id}/cancel", n.cancel)
	mux.HandleFunc("GET /v1/apps/{app}/logs", n.logs)
	handle("POST /v1/subjects/{subject}", n.publish)
	handle("PUT /v1/artifacts/{digest}", n.putArtifact)
	mux.HandleFunc("GET /v1/artifacts/{digest}", n.getArtifact)
	handle("GET /v1/artifacts", n.artifacts)
	registerCalls(handle)
	n.pool.register(handle)
	n.models.register(mux, handle)
	n.jobs.register(mux, handle, n.store)
	handle("DELETE /v1/artifacts", func(r *http.Request) (any, error) { return nil, n.store.Unname(r.Context(), r.URL.Query().Get("name")) })
	return mux
}

func notThere(what, name string) error {
	return outboard.Errorf(outboard.NotFound, "", "there is no %s %q", what, name)
}

func (n *fakeNode) app(r *http.Request) (*fakeApp, error) {
	if a := n.apps[r.PathValue("app")]; a != nil {
		return a, nil
	}
	return nil, notThere("app", r.PathValue("app"))
}

func (n *fakeNode) deploy(r *http.Request) (any, error) {
	var d client.Deployment
	if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
		return nil, err
	}
	m, err := manifest.Parse(d.File, []byte(d.Text), manifest.Options{File: func(name string) error {
		if has, err := n.store.Has(d.Files[name]); err != nil || !has {
			return errors.New("the node has not got " + name)
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	if problems := n.refuse(r, m, d); len(problems) > 0 {
		return nil, &outboard.Error{Op: "deploy", Kind: outboard.Invalid, Err: &client.ProblemsError{Problems: problems}}
	}
	made := client.Deployed{App: m.App.Name, Tenant: m.App.Tenant, Applied: time.Now()}
	for _, route := range m.App.Routes {
		made.Routes = append(made.Routes, strings.TrimSpace(strings.Join(route.Methods, ",")+" http://127.0.0.1:8080/"+m.App.Name+route.Path))
	}
	if d.Check {
		return made, nil
	}
	a := n.apps[m.App.Name]
	if a == nil {
		a = &fakeApp{}
		n.apps[m.App.Name] = a
	}
	a.versions, a.secrets = append(a.versions, m.App), d.Secrets
	made.Version = len(a.versions)
	return made, nil
}

// refuse finds what only a node can: modules that are none, and workflows that are empty.
func (n *fakeNode) refuse(r *http.Request, m *manifest.Manifest, d client.Deployment) []client.Problem {
	var problems []client.Problem
	for _, name := range slices.Sorted(maps.Keys(m.App.Functions)) {
		content, err := n.store.Read(r.Context(), d.Files[m.App.Functions[name].Module])
		if err == nil && !strings.HasPrefix(string(content), "\x00asm") {
			problems = append(problems, client.Problem(m.Problem("it is no WebAssembly module", "functions", name, "module")))
		}
	}
	for _, file := range m.App.Workflows {
		content, err := n.store.Read(r.Context(), d.Files[file])
		if err == nil && !strings.Contains(string(content), "do:") {
			problems = append(problems, client.Problem{File: file, Line: 1, Column: 1, Text: "the workflow does nothing"})
		}
	}
	return problems
}

// nodesOf are the pool's, by the app's name: "slow" does not become ready on dinghy, "torn" can't
// on buoy, and dinghy says nothing of "mixed".
func nodesOf(app string) []client.AppNode {
	other := client.AppNode{Node: "dinghy", State: client.AppReady, Serves: 1}
	switch app {
	case "slow":
		other = client.AppNode{Node: "dinghy", State: client.AppStarting}
	case "torn":
		other = client.AppNode{Node: "buoy", State: client.AppFailed, Reason: "no node has sha256:12"}
	case "mixed":
		other = client.AppNode{Node: "dinghy", State: client.AppUnknown, Reason: "its program is too old to tell"}
	}
	return []client.AppNode{other, {Node: "harbour", State: client.AppReady, Serves: 1}}
}

func (n *fakeNode) appNodes(r *http.Request) (any, error) {
	_, err := n.app(r)
	return nodesOf(r.PathValue("app")), err
}

func (n *fakeNode) list(r *http.Request) (any, error) {
	all := []client.App{}
	for name, a := range n.apps {
		app := a.current()
		c := client.App{
			Name: name, Tenant: app.Tenant, Version: len(a.versions), By: "harbour", State: "ready",
			Functions: slices.Sorted(maps.Keys(app.Functions)), Workflows: slices.Sorted(maps.Keys(app.Workflows)), Routes: []string{},
		}
		for _, route := range app.Routes {
			c.Routes = append(c.Routes, route.Path)
		}
		if r.URL.Query().Get("nodes") == "true" {
			c.Nodes = nodesOf(name)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b client.App) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// each calls f with the apps that a request means.
func (n *fakeNode) each(r *http.Request, f func(app *manifest.App)) error {
	name := r.URL.Query().Get("app")
	if name != "" && n.apps[name] == nil {
		return notThere("app", name)
	}
	for _, app := range slices.Sorted(maps.Keys(n.apps)) {
		if name == "" || name == app {
			f(n.apps[app].current())
		}
	}
	return nil
}

func (n *fakeNode) functions(r *http.Request) (any, error) {
	all := []client.Function{}
	err := n.each(r, func(app *manifest.App) {
		for _, name := range slices.Sorted(maps.Keys(app.Functions)) {
			all = append(all, client.Function{
				App: app.Name, Name: name,
				FunctionCounts: client.FunctionCounts{Calls: 7, Errors: 1, Cold: 1, Cloned: 2, Reset: 4, P50: client.Duration(5 * time.Microsecond)},
				Limits:         client.FunctionLimits{Memory: 64 << 20, Deadline: client.Duration(time.Second)}, Imports: []string{"bucket:seats"},
			})
		}
	})
	return all, err
}

func (n *fakeNode) workflows(r *http.Request) (any, error) {
	all := []client.Workflow{}
	err := n.each(r, func(app *manifest.App) {
		for _, name := range slices.Sorted(maps.Keys(app.Workflows)) {
			all = append(all, client.Workflow{App: app.Name, Name: name, Steps: 4, Completed: len(n.executions)})
		}
	})
	return all, err
}

func (n *fakeNode) rollback(r *http.Request) (any, error) {
	a, err := n.app(r)
	if err != nil {
		return nil, err
	}
	before := len(a.versions) - 1
	if before == 0 {
		return nil, outboard.Errorf(outboard.NotFound, "roll back", "there is no earlier version")
	}
	a.versions = append(a.versions, a.versions[before-1])
	return client.Deployed{App: r.PathValue("app"), Tenant: a.current().Tenant, Version: len(a.versions), Of: before}, nil
}

func (n *fakeNode) remove(r *http.Request) (any, error) {
	_, err := n.app(r)
	delete(n.apps, r.PathValue("app"))
	return struct{}{}, err
}

// invoke answers with what it gets; the function "secret" with the app's secrets, and
// "broken" with the status 500.
func (n *fakeNode) invoke(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, err := n.app(r)
	name := r.PathValue("function")
	if err == nil && name != "secret" {
		if _, ok := a.current().Functions[name]; !ok {
			err = notThere("function", name)
		}
	}
	if err != nil {
		w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
		_ = json.NewEncoder(w).Encode(client.FailureOf(err))
		return
	}
	cost := client.CallCost{Call: "c1", Node: "harbour", Start: "reset", Took: client.Duration(5 * time.Microsecond), Fuel: 1024}
	if name == "broken" {
		cost.Status = http.StatusInternalServerError
	}
	text, _ := json.Marshal(cost)
	w.Header().Set(client.CallHeader, string(text))
	if name == "secret" {
		_, _ = w.Write(a.secrets["token"])
		return
	}
	_, _ = io.Copy(w, r.Body)
}

// run records an execution of two steps. It faults where the input has "fault", and goes on where
// it has "long".
func (n *fakeNode) run(r *http.Request) (any, error) {
	a, err := n.app(r)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("workflow")
	if _, ok := a.current().Workflows[name]; !ok {
		return nil, notThere("workflow", name)
	}
	input, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("app") + "/" + cmp.Or(r.URL.Query().Get("id"), "e"+string(rune('1'+len(n.executions))))
	for _, e := range n.executions {
		if e.ID == id {
			return e, nil
		}
	}
	e := fakeExecution(id, name, input)
	e.App = r.PathValue("app")
	n.executions = append([]client.Execution{e}, n.executions...)
	return e, nil
}

func fakeExecution(id, workflow string, input []byte) client.Execution {
	began := time.Date(2026, time.March, 1, 2, 3, 4, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	e := client.Execution{
		ID: id, Workflow: workflow, Version: 1, State: client.StateCompleted, Node: "harbour", Started: began, Ended: at(12),
		Input: input, Output: json.RawMessage(`{"done":true}`),
		Nodes: []client.Tenure{{Node: "dinghy", Since: began, Reason: "started"}, {Node: "harbour", Since: at(4), Reason: "node dinghy has left"}},
		Steps: []client.Step{
			{
				Task: "/do/0/decode", Name: "decode", Kind: "call", Function: "decode", Attempt: 1, State: client.StateCompleted, Node: "dinghy",
				Ready: began, Started: at(1), Took: client.Duration(2 * time.Millisecond), Start: "clone", Copied: 1 << 20,
				Imports: []client.ImportUse{{Name: "bucket:seats", Calls: 3, Took: client.Duration(time.Millisecond)}},
			},
			{
				Task: "/do/1/resize", Name: "resize", Kind: "call", Function: "resize", Attempt: 2, State: client.StateCompleted, Node: "harbour",
				Ready: at(4), Started: at(5), Took: client.Duration(3 * time.Millisecond), Start: "reset", Pointer: 4 << 20,
			},
		},
		Why: []client.Reason{{Steps: []string{"/do/0/decode", "/do/1/resize"}, Node: "harbour", Text: "they exchange 4MiB: one node, one arena"}},
	}
	switch {
	case strings.Contains(string(input), "fault"):
		f := &client.Fault{Type: "https://serverlessworkflow.io/spec/1.0.0/errors/runtime", Status: 500, Title: "trap", Instance: "/do/1/resize"}
		e.State, e.Output, e.Fault, e.Steps[1].Fault, e.Steps[1].State = client.StateFaulted, nil, f, f, client.StateFaulted
	case strings.Contains(string(input), "long"):
		e.State, e.Output, e.Ended = client.StateRunning, nil, time.Time{}
	}
	return e
}

func (n *fakeNode) listExecutions(r *http.Request) (any, error) {
	all := []client.Execution{}
	query := r.URL.Query()
	for _, e := range n.executions {
		_, own, _ := strings.Cut(e.ID, "/")
		for key, value := range map[string]string{"app": e.App, "workflow": e.Workflow, "state": e.State, "id": own} {
			if want := query.Get(key); want != "" && want != value {
				e.ID = ""
			}
		}
		if e.ID != "" {
			e.Input, e.Steps, e.Nodes, e.Why = nil, nil, nil, nil
			all = append(all, e)
		}
	}
	return all, nil
}

func (n *fakeNode) find(r *http.Request) (*client.Execution, error) {
	id := r.PathValue("app") + "/" + r.PathValue("id")
	for i := range n.executions {
		if n.executions[i].ID == id {
			return &n.executions[i], nil
		}
	}
	return nil, notThere("execution", id)
}

func (n *fakeNode) execution(r *http.Request) (any, error) {
	e, err := n.find(r)
	if err != nil {
		return nil, err
	}
	out := *e
	if r.URL.Query().Get("why") != "true" {
		out.Why = nil
	}
	return out, nil
}

func (n *fakeNode) cancel(r *http.Request) (any, error) {
	e, err := n.find(r)
	if err == nil && e.State == client.StateRunning {
		e.State = client.StateCancelled
	}
	return e, err
}

func (n *fakeNode) logs(w http.ResponseWriter, r *http.Request) {
	if app := r.PathValue("app"); app == "job-none" {
		api.Refuse(w, notThere("app", app))
		return
	}
	n.mu.Lock()
	at := time.Date(2026, time.March, 1, 2, 3, 4, 5e6, time.UTC)
	lines := append([]client.LogLine{
		{Time: at, Node: "harbour", Function: "cart", Call: "c1", Stream: "stdout", Text: "hello\nworld\n"},
		{Time: at, Node: "dinghy", Function: "cart", Call: "c1", Stream: "call", Trigger: "http", Status: 200, Took: client.Duration(5 * time.Microsecond), Fuel: 1024},
		{Time: at, Function: "resize", Call: "c2", Execution: "shop/e1", Step: "/do/1/resize", Stream: "stderr", Text: "warning"},
		{Time: at, Node: "buoy", Stream: client.WarningStream, Text: "the lines of node buoy are missing"},
	}, n.published...)
	n.mu.Unlock()
	out := json.NewEncoder(w)
	for _, l := range lines {
		if f := r.URL.Query().Get("function"); f == "" || f == l.Function {
			_ = out.Encode(l)
		}
	}
	if r.URL.Query().Get("follow") == "true" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func (n *fakeNode) publish(r *http.Request) (any, error) {
	message, err := io.ReadAll(r.Body)
	n.published = append(n.published, client.LogLine{Function: "subscriber", Call: "c3", Stream: "stdout", Text: r.PathValue("subject") + " " + string(message)})
	return struct{}{}, err
}

func (n *fakeNode) putArtifact(r *http.Request) (any, error) {
	digest, name := r.PathValue("digest"), r.URL.Query().Get("name")
	n.puts++
	if _, err := n.store.Save(r.Context(), digest, r.Body); err != nil || name == "" {
		return client.Artifact{Digest: digest}, err
	}
	named, err := n.store.Name(r.Context(), name, digest, artifact.Info{})
	return client.Artifact{Digest: digest, Name: name, Manifest: named.Manifest}, err
}

func (n *fakeNode) getArtifact(w http.ResponseWriter, r *http.Request) {
	content, err := n.store.Read(r.Context(), r.PathValue("digest"))
	if err != nil {
		w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
		_ = json.NewEncoder(w).Encode(client.FailureOf(err))
		return
	}
	_, _ = w.Write(content)
}

func (n *fakeNode) artifacts(r *http.Request) (any, error) {
	named, err := n.store.Names(r.Context())
	all, name := []client.Artifact{}, r.URL.Query().Get("name")
	for _, a := range named {
		if name == "" || a.Name == name {
			all = append(all, client.Artifact{Digest: a.Module, Size: outboard.Bytes(a.Size), Name: a.Name, Manifest: a.Manifest})
		}
	}
	return all, err
}
