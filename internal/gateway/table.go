package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/outboard-run/outboard"
)

// A Table is the routes of all apps. It does not change.
type Table struct {
	apps map[string]*tableApp
	// coming are those that take no requests yet.
	coming map[string]*tableApp
}

// all are the apps, those among them that are coming.
func (t *Table) all(yield func(string, *tableApp) bool) {
	for _, apps := range []map[string]*tableApp{t.apps, t.coming} {
		for name, a := range apps {
			if !yield(name, a) {
				return
			}
		}
	}
}

// find returns an app, one that is coming, too, or nil.
func (t *Table) find(name string) *tableApp {
	if a := t.apps[name]; a != nil {
		return a
	}
	return t.coming[name]
}

// tableApp is one app of a table.
type tableApp struct {
	app App
	// routes has the app's routes, and for what none of them takes a handler that
	// answers with a problem.
	routes *http.ServeMux
	// missed is told of the status of each request that no route took; nil: nobody is.
	missed func(status int)
}

// NewTable checks the routes of apps: what SetApps would refuse is an error.
func NewTable(apps []App) (*Table, error) {
	for i := range apps {
		if err := apps[i].validate(); err != nil {
			return nil, err
		}
	}
	return newTable(apps, func(*App, *Route, string) http.Handler { return http.NotFoundHandler() })
}

// newTable makes a table whose routes lead to what handler returns for them.
func newTable(apps []App, handler func(a *App, r *Route, pattern string) http.Handler) (*Table, error) {
	t := &Table{apps: make(map[string]*tableApp, len(apps)), coming: map[string]*tableApp{}}
	for _, a := range apps {
		if t.find(a.Name) != nil {
			return nil, outboard.Errorf(outboard.Invalid, "check app "+a.Name, "there are two apps of this name")
		}
		built, err := newTableApp(a, handler)
		if err != nil {
			return nil, err
		}
		if a.Await != nil {
			t.coming[a.Name] = built
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
				return nil, a.wrong("route "+name, err)
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

// register is Handle without its panic.
func register(m *http.ServeMux, pattern string, h http.Handler) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s", withoutPlaces(fmt.Sprint(r)))
		}
	}()
	m.Handle(pattern, h)
	return nil
}

// withoutPlaces leaves out where in our sources a pattern was registered.
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

// unrouted answers requests that no route takes. The bare routes, which lack this
// handler, know which methods would have been taken.
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
		if t.missed != nil {
			t.missed(p.Status)
		}
		p.Write(w)
	}
}

// A probe takes an answer of net/http's to look at it.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(status int)      { p.status = status }

// AppOf is the app that a request is for: the first segment of its path.
func AppOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name
}

func unknownApp(w http.ResponseWriter, r *http.Request) {
	problem(http.StatusNotFound, fmt.Sprintf("path %q: there is no app %q here", r.URL.Path, AppOf(r.URL.Path))).Write(w)
}
