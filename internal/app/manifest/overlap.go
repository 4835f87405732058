package manifest

import (
	"net/http"
	"strings"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// overlaps finds routes that take the same requests, with net/http's own rules.
type overlaps struct {
	mux    *http.ServeMux
	routes []Route
	lines  []int
}

// add reports a problem if requests match the route and an earlier one, and neither is more
// specific.
func (o *overlaps) add(r *reader, v pathNode, route Route) {
	for _, pattern := range route.patterns() {
		if register(o.mux, pattern) != nil {
			o.report(r, v, pattern, route.Path)
			break
		}
	}
	o.routes, o.lines = append(o.routes, route), append(o.lines, v.Line)
}

func (o *overlaps) report(r *reader, v pathNode, pattern, path string) {
	for i, other := range o.routes {
		c, yes := other.clash(pattern)
		switch {
		case !yes:
			continue
		case c.example != "":
			r.report(v.Node, "%s and %s at line %d both match %s, and neither is more specific: change one", path, other.Path, o.lines[i], c.example)
		case c.methods:
			r.report(v.Node, "%s and %s at line %d match the same requests; the one with the more specific path takes more methods, so neither goes first: give both the same methods",
				path, other.Path, o.lines[i])
		default:
			r.report(v.Node, "%s has a route at line %d already: leave one out, or give each its methods", path, o.lines[i])
		}
		return
	}
}

// clash is how two routes take the same requests; the zero value: always.
type clash struct {
	example string // a path that both match
	methods bool   // one has the more specific path, the other fewer methods
}

var example = lazyregexp.New(`like "(?:[A-Z]+ )?([^"]*)"`)

// clash reports whether a route takes requests that a pattern matches.
func (route *Route) clash(pattern string) (clash, bool) {
	for _, own := range route.patterns() {
		m := http.NewServeMux()
		if register(m, own) != nil {
			break
		}
		if err := register(m, pattern); err != nil {
			c := clash{methods: strings.Contains(err.Error(), "methods than")}
			if found := example.FindStringSubmatch(err.Error()); found != nil {
				c.example = found[1]
			}
			return c, true
		}
	}
	return clash{}, false
}
