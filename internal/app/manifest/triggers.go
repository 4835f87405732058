package manifest

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/spell"
)

// maxRoutes bounds the routes of an app.
const maxRoutes = 500

// triggerReader reads the triggers of an app: routes, subjects and schedules.
type triggerReader struct{ *reader }

func (r *triggerReader) routes(v pathNode, a *App) {
	if len(v.Content) > maxRoutes {
		r.report(v.Node, "%d routes; an app has %d at most", len(v.Content), maxRoutes)
		return
	}
	o := overlaps{mux: http.NewServeMux()}
	r.list(v, "routes", "- {path: /cart/{id}, methods: [GET], function: cart}", func(v pathNode) {
		route, complete := r.route(a, v)
		a.Routes = append(a.Routes, route)
		if complete {
			o.add(r.reader, v, route)
		}
	})
}

// route reads a route, and reports whether it has no problem.
func (r *triggerReader) route(a *App, v pathNode) (Route, bool) {
	var route Route
	before := len(r.problems)
	got := r.mapping(v, "a route", members{
		"path":      func(v pathNode) { r.routePath(v, &route.Path) },
		"methods":   func(v pathNode) { r.methods(v, &route.Methods) },
		"function":  r.target(a, "function", &route.Function),
		"workflow":  r.target(a, "workflow", &route.Workflow),
		"websocket": r.target(a, "websocket", &route.WebSocket),
		"wait":      r.boolean(&route.Wait),
		"origins":   func(v pathNode) { r.origins(v, &route.Origins) },

		"subprotocols": func(v pathNode) { r.subprotocols(v, &route.Subprotocols) },

		"request": r.size(&route.Request, 1),
	})
	if v.Kind != yaml.MappingNode {
		return route, false
	}
	if _, ok := got["path"]; !ok {
		r.report(v.Node, "the route has no path: write one, as in: path: /cart/{id}")
	}
	r.oneTarget(v, got, "function", "workflow", "websocket")
	r.belongs(got, "wait", "workflow", "only a workflow is waited for")
	r.belongs(got, "origins", "websocket", "only a WebSocket has origins")
	r.belongs(got, "subprotocols", "websocket", "only a WebSocket has subprotocols")
	if methods, ok := got["methods"]; ok && route.WebSocket != "" {
		r.report(methods.Node, "a WebSocket has no methods: leave them out")
	}
	return route, len(r.problems) == before
}

// oneTarget reports a problem unless exactly one of some members is present.
func (r *triggerReader) oneTarget(v pathNode, got map[string]pathNode, targets ...string) {
	var there []string
	for _, t := range targets {
		if _, ok := got[t]; ok {
			there = append(there, t)
		}
	}
	switch {
	case v.Kind != yaml.MappingNode || len(there) == 1:
	case len(there) == 0:
		r.report(v.Node, "this leads nowhere: add one of %s, as in: %s: NAME", strings.Join(targets, ", "), targets[0])
	default:
		r.report(v.Node, "this leads to a %s: keep one", strings.Join(there, " and to a "))
	}
}

// belongs reports a problem if a member is present without another one.
func (r *triggerReader) belongs(got map[string]pathNode, member, other, why string) {
	v, ok := got[member]
	if _, there := got[other]; ok && !there {
		r.report(v.Node, "%s: leave %s out", why, member)
	}
}

func (r *triggerReader) routePath(v pathNode, to *string) {
	r.text(to, "a path, such as /cart/{id}")(v)
	if *to == "" {
		return
	}
	if why := pathError(*to); why != "" {
		r.report(v.Node, "path %q: %s", *to, why)
		return
	}
	if err := register(http.NewServeMux(), *to); err != nil {
		r.report(v.Node, "path %q: %v", *to, err)
	}
}

// pathError returns why a text is no path of a route; net/http finds the other mistakes.
func pathError(path string) string {
	if !strings.HasPrefix(path, "/") {
		return "write /" + path
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == "" && !last:
			return "it has two slashes beside each other: leave one out"
		case s == "." || s == "..":
			return "it has a segment " + s + ": write where it leads"
		case strings.ContainsAny(s, " ?#%\\"):
			return "a segment has no blank, ?, #, % or \\: a query is no part of a path"
		case strings.ContainsAny(s, "{}") && (s[0] != '{' || s[len(s)-1] != '}'):
			return "a parameter is a whole segment, as in /cart/{id}"
		case strings.HasSuffix(s, "...}") && !last:
			return s + " takes all that follows: it must be the last segment"
		}
	}
	return ""
}

// register is Handle, but returns an error instead of a panic.
func register(m *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			text, ok := p.(string)
			if e, isError := p.(error); isError {
				text, ok = e.Error(), true
			}
			if !ok {
				text = "it is no pattern"
			}
			err = errors.New(withoutPrefix(text))
		}
	}()
	m.Handle(pattern, http.NotFoundHandler())
	return nil
}

// withoutPrefix removes net/http's own prefix from the text of an error.
func withoutPrefix(text string) string {
	if _, rest, ok := strings.Cut(text, "at offset "); ok {
		_, text, _ = strings.Cut(rest, ": ")
	}
	return strings.Join(strings.Fields(text), " ")
}

func allMethods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
}

func (r *triggerReader) methods(v pathNode, to *[]string) {
	r.list(v, "methods", "[GET, POST]", func(v pathNode) {
		switch {
		case !slices.Contains(allMethods(), v.Value):
			r.report(v.Node, "%q is no method: %s", v.Value, spell.Hint(v.Value, allMethods()))
		case slices.Contains(*to, v.Value):
			r.report(v.Node, "%s is here twice: leave one out", v.Value)
		default:
			*to = append(*to, v.Value)
		}
	})
	if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
		r.report(v.Node, "no method: leave methods out to take all of them")
	}
}

// subprotocols reads names of RFC 6455, section 4.1, which are tokens.
func (r *triggerReader) subprotocols(v pathNode, to *[]string) {
	r.list(v, "subprotocols", "[v2.chat.example.org]", func(v pathNode) {
		var name string
		r.text(&name, "the name of a subprotocol, such as v2.chat.example.org")(v)
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", c) }) {
			r.report(v.Node, "%q: a subprotocol's name has letters, digits, dots, - and _", name)
		}
		*to = append(*to, name)
	})
}

func (r *triggerReader) origins(v pathNode, to *[]string) {
	r.list(v, "origins", "[shop.example.org]", func(v pathNode) {
		var host string
		r.text(&host, "a host, such as shop.example.org")(v)
		if strings.Contains(host, "/") {
			r.report(v.Node, "%q: write the host alone, as in shop.example.org", host)
		}
		*to = append(*to, host)
	})
}

// patterns returns the patterns of a route for net/http.
func (route *Route) patterns() []string {
	methods := route.Methods
	switch {
	case route.WebSocket != "":
		methods = []string{http.MethodGet}
	case len(methods) == 0:
		return []string{route.Path}
	}
	var all []string
	for _, m := range methods {
		all = append(all, m+" "+route.Path)
	}
	return all
}

func (r *triggerReader) subjects(v pathNode, a *App) {
	lines := map[Subject]int{}
	r.list(v, "subjects", "- {subject: orders.new, function: cart}", func(v pathNode) {
		var s Subject
		got := r.mapping(v, "a subject's trigger", members{
			"subject":  func(v pathNode) { r.subject(v, &s.Subject) },
			"queue":    func(v pathNode) { r.queue(v, &s.Queue) },
			"function": r.target(a, "function", &s.Function),
			"workflow": r.target(a, "workflow", &s.Workflow),
		})
		r.oneTarget(v, got, "function", "workflow")
		if _, ok := got["subject"]; !ok && v.Kind == yaml.MappingNode {
			r.report(v.Node, "the trigger has no subject: write one, as in: subject: orders.new")
		}
		if first := lines[s]; first != 0 && s.Subject != "" {
			r.report(v.Node, "the same trigger is at line %d already: leave one out", first)
		}
		lines[s] = v.Line
		a.Subjects = append(a.Subjects, s)
	})
}

func (r *triggerReader) subject(v pathNode, to *string) {
	r.text(to, "a subject, such as orders.new")(v)
	tokens := strings.Split(*to, ".")
	for i, t := range tokens {
		switch {
		case *to == "":
		case t == "":
			r.report(v.Node, "subject %q: a part between dots is empty", *to)
		case strings.ContainsFunc(t, func(c rune) bool { return c <= ' ' || c == 0x7f }):
			r.report(v.Node, "subject %q: it has a blank", *to)
		case strings.ContainsAny(t, "*>") && len(t) > 1:
			r.report(v.Node, "subject %q: * and > stand alone between dots, as in orders.* or orders.>", *to)
		case t == ">" && i < len(tokens)-1:
			r.report(v.Node, "subject %q: > takes all that follows: it must be the last part", *to)
		case i == 0 && (t[0] == '$' || t[0] == '_'):
			r.report(v.Node, "subject %q: those that begin with %c belong to the system", *to, t[0])
		case i == 0 && (Reserved(t) || t == "*" || t == ">"):
			r.report(v.Node, "subject %q: what begins with outboard, rooms or events belongs to the system: begin with a word of your own", *to)
		default:
			continue
		}
		return
	}
}

// Reserved reports whether apps must neither subscribe to subjects whose first part is word nor
// publish there: they carry the pool's changes, and other apps' rooms and events.
func Reserved(word string) bool { return word == "outboard" || word == "rooms" || word == "events" }

func (r *triggerReader) queue(v pathNode, to *string) {
	r.text(to, "the name of a group")(v)
	if strings.ContainsFunc(*to, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '*' || c == '>' }) {
		r.report(v.Node, "queue %q: it has no blank, * or >", *to)
	}
	if strings.HasPrefix(*to, "outboard/") {
		r.report(v.Node, "queue %q: what begins with outboard/ belongs to the system: begin with a word of your own", *to)
	}
}

func (r *triggerReader) schedules(v pathNode, a *App) {
	r.list(v, "schedules", `- {cron: "*/5 * * * *", function: cart}`, func(v pathNode) {
		var s Schedule
		got := r.mapping(v, "a schedule", members{
			"cron":     func(v pathNode) { r.cron(v, &s.Cron) },
			"zone":     func(v pathNode) { r.zone(v, &s.Zone) },
			"function": r.target(a, "function", &s.Function),
			"workflow": r.target(a, "workflow", &s.Workflow),
			"body": func(v pathNode) {
				if r.scalar(v, "a text: what the function gets") {
					s.Body = v.Value
				}
			},
		})
		r.oneTarget(v, got, "function", "workflow")
		if _, ok := got["cron"]; !ok && v.Kind == yaml.MappingNode {
			r.report(v.Node, `the schedule says not when: write it, as in: cron: "*/5 * * * *"`)
		}
		a.Schedules = append(a.Schedules, s)
	})
}

// referenceTime returns the time from which a schedule has to have a next run.
func referenceTime() time.Time { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) }

func (r *triggerReader) cron(v pathNode, to *string) {
	r.text(to, `a time in five fields, such as "*/5 * * * *"`)(v)
	if *to == "" {
		return
	}
	if strings.Contains(*to, "TZ=") {
		r.report(v.Node, "cron %q: write the time zone beside it, as in: zone: Europe/Berlin", *to)
		return
	}
	schedule, err := cron.ParseStandard(*to)
	switch {
	case err != nil:
		r.report(v.Node, `cron %q: %v; the fields are minute, hour, day of month, month, day of week, as in "*/5 * * * *", or one of @hourly, @daily, @weekly, @monthly, @every 10m`, *to, err)
	case schedule.Next(referenceTime()).IsZero():
		r.report(v.Node, "cron %q: there is no such day", *to)
	}
}

func (r *triggerReader) zone(v pathNode, to *string) {
	r.text(to, "a time zone, such as Europe/Berlin")(v)
	if _, err := time.LoadLocation(*to); err != nil || *to == "Local" {
		r.report(v.Node, "%q is no time zone: write one such as Europe/Berlin or UTC", *to)
	}
}
