package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/outboard-run/outboard"
)

// Table holds the routes of all apps. It is immutable.
type Table struct {
	apps map[string]*tableApp
	// loading are the apps that take no requests yet.
	loading map[string]*tableApp
}

// all iterates over the apps, including loading ones.
func (t *Table) all(yield func(string, *tableApp) bool) {
	for _, apps := range []map[string]*tableApp{t.apps, t.loading} {
		for name, a := range apps {
			if !yield(name, a) {
				return
			}
		}
	}
}

// find returns an app, including loading ones, or nil.
func (t *Table) find(name string) *tableApp {
	if a := t.apps[name]; a != nil {
		return a
	}
	return t.loading[name]
}

// tableApp is one app of a table.
type tableApp struct {
	app App
	// routes has the app's routes, and a handler that answers other requests with a problem.
	routes *http.ServeMux
	// onMiss, if it is not nil, is called with the status of each request without a route.
	onMiss func(status int)
}

// NewTable checks the routes of apps as SetApps does.
func NewTable(apps []App) (*Table, error) {
	for i := range apps {
		if err := apps[i].validate(); err != nil {
			return nil, err
		}
	}
	return newTable(apps, func(*App, *Route, string) http.Handler { return http.NotFoundHandler() })
}

// newTable builds a table; handler returns the handler of a route.
func newTable(apps []App, handler func(a *App, r *Route, pattern string) http.Handler) (*Table, error) {
	t := &Table{apps: make(map[string]*tableApp, len(apps)), loading: map[string]*tableApp{}}
	for _, a := range apps {
		if t.find(a.Name) != nil {
			return nil, outboard.Errorf(outboard.Invalid, "check app "+a.Name, "there are two apps of this name")
		}
		built, err := newTableApp(a, handler)
		if err != nil {
			return nil, err
		}
		if a.Await != nil {
			t.loading[a.Name] = built
			continue
		}
		t.apps[a.Name] = built
	}
	return t, nil
}

func newTableApp(a App, handler func(*App, *Route, string) http.Handler) (*tableApp, error) {
	t := &tableApp{app: a, routes: http.NewServeMux()}
	bare := http.NewServeMux()
	for i := range a.Routes {
		r := &t.app.Routes[i]
		for _, method := range methodsOf(r) {
			name := strings.TrimSpace(method + " " + r.Path)
			pattern := strings.TrimSpace(method + " /" + a.Name + r.Path)
			h := handler(&t.app, r, name)
			if err := register(bare, pattern, h); err != nil {
				return nil, a.invalid("route "+name, err)
			}
			t.routes.Handle(pattern, h)
		}
	}
	t.routes.Handle("/", t.unrouted(bare))
	return t, nil
}

func methodsOf(r *Route) []string {
	switch {
	case r.WebSocket:
		return []string{http.MethodGet}
	case len(r.Methods) == 0:
		return []string{""}
	}
	return r.Methods
}

// register is ServeMux.Handle with an error instead of a panic.
func register(m *http.ServeMux, pattern string, h http.Handler) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s", withoutPlaces(fmt.Sprint(r)))
		}
	}()
	m.Handle(pattern, h)
	return nil
}

// withoutPlaces removes the source positions from an error of net/http.ServeMux.
func withoutPlaces(text string) string {
	for {
		before, rest, found := strings.Cut(text, " (registered at ")
		_, after, closed := strings.Cut(rest, ")")
		if !found || !closed {
			return strings.Join(strings.Fields(strings.ReplaceAll(text, "\n", " ")), " ")
		}
		text = before + after
	}
}

// unrouted returns a handler for requests without a route. bare has the routes without this
// handler, and so returns the allowed methods.
func (t *tableApp) unrouted(bare *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h, _ := bare.Handler(r)
		probe := probe{header: http.Header{}}
		h.ServeHTTP(&probe, r)
		p := problem(http.StatusNotFound, fmt.Sprintf("path %q: the app %s has no such route", r.URL.Path, t.app.Name))
		if probe.status == http.StatusMethodNotAllowed {
			allow := probe.header.Get("Allow")
			w.Header().Set("Allow", allow)
			p = problem(probe.status, fmt.Sprintf("method %s: this route of the app %s takes %s", r.Method, t.app.Name, allow))
		}
		if t.onMiss != nil {
			t.onMiss(p.Status)
		}
		p.Write(w)
	}
}

// probe records the response of a handler.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(status int)      { p.status = status }

// AppOf returns the app of a request: the first segment of its path.
func AppOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name
}

// Reserved reports whether the first segment of a path belongs to the interfaces of models, which
// the node serves itself: OpenAI's, the Open Inference Protocol and Ollama's.
func Reserved(app string) bool { return app == "v1" || app == "v2" || app == "api" }

func unknownApp(w http.ResponseWriter, r *http.Request) {
	problem(http.StatusNotFound, fmt.Sprintf("path %q: there is no app %q here", r.URL.Path, AppOf(r.URL.Path))).Write(w)
}
