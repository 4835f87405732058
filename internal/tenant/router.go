package tenant

import (
	"time"

	"github.com/outboard-run/outboard/internal/app"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/gateway"
)

// router publishes the routes of apps at the gateway: it implements app.Router.
type router struct{ gateway *gateway.Gateway }

// Publish implements app.Router.
func (r router) Publish(serving []*version, loading []app.Loading) error {
	var all []gateway.App
	for _, v := range serving {
		all = append(all, gatewayApp(v.Spec, func(function string) (bool, bool) {
			f := v.Functions[function]
			return f != nil && f.http, f != nil && f.streams
		}))
	}
	for _, l := range loading { // apps that take no requests yet
		a := gatewayApp(l.Spec, func(string) (bool, bool) { return false, false })
		a.Await = l.Await
		all = append(all, a)
	}
	return r.gateway.SetApps(all)
}

// functionTraits reports whether a function takes HTTP messages, and whether it may stream.
type functionTraits func(function string) (http, streams bool)

// gatewayApp translates the routes and triggers of a manifest into the gateway's.
func gatewayApp(spec *manifest.App, traits functionTraits) gateway.App {
	a := gateway.App{Name: spec.Name}
	for _, r := range spec.Routes {
		a.Routes = append(a.Routes, gatewayRoute(r, traits))
	}
	for _, s := range spec.Subjects {
		a.Subjects = append(a.Subjects, gateway.SubjectTrigger{Subject: s.Subject, Queue: s.Queue, Target: gateway.Target{Function: s.Function, Workflow: s.Workflow}})
	}
	for _, s := range spec.Schedules {
		zone, err := time.LoadLocation(s.Zone)
		if err != nil {
			zone = time.UTC // the manifest was checked on a machine that has the zone
		}
		a.Crons = append(a.Crons, gateway.CronTrigger{
			Schedule: s.Cron, Zone: zone, Body: []byte(s.Body), Target: gateway.Target{Function: s.Function, Workflow: s.Workflow},
		})
	}
	return a
}

func gatewayRoute(r manifest.Route, traits functionTraits) gateway.Route {
	route := gateway.Route{
		Methods: r.Methods, Path: r.Path, Origins: r.Origins, Subprotocols: r.Subprotocols, MaxBody: r.Request,
		Target: gateway.Target{Function: r.Function, Workflow: r.Workflow, Wait: r.Wait},
	}
	if r.Function != "" {
		route.HTTP, route.Streams = traits(r.Function)
	}
	if r.WebSocket != "" {
		route.Function, route.WebSocket, route.HTTP, route.Streams = r.WebSocket, true, false, false
	}
	return route
}
