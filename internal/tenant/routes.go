package tenant

import (
	"context"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/gateway"
)

// routes are the apps as the gateway knows them.
func (t *Tenant) routes(current map[string]*version) []gateway.App {
	var all []gateway.App
	for _, name := range slices.Sorted(maps.Keys(current)) {
		all = append(all, routesOf(current[name].spec))
	}
	return all
}

// waiting are apps that are not ready: the gateway takes their messages and times, and lets
// them wait.
func (t *Tenant) waiting(early []*catalog.Version) []gateway.App {
	var all []gateway.App
	for _, v := range early {
		name := v.App.Name
		a := routesOf(&v.App)
		// A version that can't be built is tried again, and they wait for that, too.
		a.Await = func(ctx context.Context) error {
			return t.awaitPlace(ctx, name, func(p *place) bool { return p.served > 0 })
		}
		all = append(all, a)
	}
	return all
}

func routesOf(spec *manifest.App) gateway.App {
	a := gateway.App{Name: spec.Name}
	for _, r := range spec.Routes {
		route := gateway.Route{
			Methods: r.Methods, Path: r.Path, Origins: r.Origins, MaxBody: r.Request,
			Target: gateway.Target{Function: r.Function, Workflow: r.Workflow, Wait: r.Wait}, HTTP: spec.Functions[r.Function].HTTP,
		}
		if r.WebSocket != "" {
			route.Function, route.WebSocket, route.HTTP = r.WebSocket, true, false
		}
		a.Routes = append(a.Routes, route)
	}
	for _, s := range spec.Subjects {
		a.Subjects = append(a.Subjects, gateway.SubjectTrigger{Subject: s.Subject, Queue: s.Queue, Target: gateway.Target{Function: s.Function, Workflow: s.Workflow}})
	}
	for _, s := range spec.Schedules {
		zone, err := time.LoadLocation(s.Zone)
		if err != nil {
			zone = time.UTC // the manifest was checked where there was such a zone
		}
		a.Crons = append(a.Crons, gateway.CronTrigger{
			Schedule: s.Cron, Zone: zone, Body: []byte(s.Body), Target: gateway.Target{Function: s.Function, Workflow: s.Workflow},
		})
	}
	return a
}

// unserved is missing without what is the operator's to know.
func (t *Tenant) unserved(app string) error {
	if outboard.KindOf(t.missing(app)) == outboard.NotFound {
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
		app, ok := t.apps.registry.Get(name)
		if current := app.Current(); !ok || current == nil || current.App.Tenant == t.config.Tenant {
			gateway.NewProblem(t.unserved(name)).Write(w)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}
