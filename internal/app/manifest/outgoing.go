package manifest

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/lazyregexp"
)

var serviceName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// outgoing reads the hosts to which the app may send requests, texts or {host: ..., private: true},
// and the services of the pool that it may call, {service: ...}.
func (r *reader) outgoing(v pathNode, a *App) {
	lines := map[string]int{}
	r.list(v, "outgoing", "[api.example.com]", func(v pathNode) {
		text, private := v.Value, false
		if v.Kind == yaml.MappingNode {
			text = ""
			service := ""
			r.mapping(v, "an entry of outgoing", members{
				"host": r.text(&text, "the name of a host"), "private": r.boolean(&private), "service": r.text(&service, "the full name of a service"),
			})
			if service != "" {
				r.service(v, service, text != "" || private, a)
				return
			}
			if text == "" {
				return
			}
		} else if !r.scalar(v, "a host, such as api.example.com") {
			return
		}
		h, err := egress.ParseHost(text)
		if err != nil {
			r.report(v.Node, "%v", err)
			return
		}
		h.Private = private
		if first := lines[h.String()]; first != 0 {
			r.report(v.Node, "%s is at line %d already: leave one out", h, first)
			return
		}
		lines[h.String()] = v.Line
		a.Outgoing = append(a.Outgoing, h)
	})
}

// service reads a service of the pool.
func (r *reader) service(v pathNode, name string, host bool, a *App) {
	switch {
	case host:
		r.report(v.Node, "an entry is a host or a service: begin another one with \"- service:\"")
	case len(name) > 255 || !serviceName.MatchString(name):
		r.report(v.Node, "%q is no full name of a service, such as shop.v1.Orders", name)
	case strings.HasPrefix(name, "outboard."):
		r.report(v.Node, "%q is a service of the nodes: apps may not call it", name)
	default:
		a.Services = append(a.Services, name)
	}
}

func (a *App) outgoingHosts() []string {
	names := make([]string, len(a.Outgoing))
	for i, h := range a.Outgoing {
		names[i] = h.String()
	}
	return names
}

// noun names the kind in messages.
func (k Kind) noun() string {
	if k == ImportOutgoing {
		return "host in outgoing"
	}
	return string(k)
}
