package tenant

import (
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

// unserved is missing without what is the operator's to know.
func (t *Tenant) unserved(app string) error {
	if outboard.KindOf(t.apps.Unavailable(app)) == outboard.NotFound {
		return outboard.Errorf(outboard.NotFound, "", "there is no app %q here", app)
	}
	return outboard.Errorf(outboard.Unreachable, "", "app %q is not ready on this node: try again", app)
}

// elsewhere serves requests for other tenants' apps that come on a connection which
// this process has: they go by way of the node, which knows whose they are.
func (t *Tenant) elsewhere() http.Handler {
	if t.config.HTTP == "" {
		return nil
	}
	proxy := &httputil.ReverseProxy{
		Transport:     &http.Transport{DisableKeepAlives: true},
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", t.config.HTTP, r.In.Host
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			gateway.NewProblem(outboard.Errorf(outboard.Unreachable, "", "%w", err)).Write(w)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		app, ok := t.registry.Get(name)
		if current := app.Current(); !ok || current == nil || current.App.Tenant == t.config.Tenant {
			gateway.NewProblem(t.unserved(name)).Write(w)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// list names the keys of a map.
func list[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
