package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// App is an app as the gateway serves it. It must not be changed after it was passed to SetApps.
type App struct {
	Name     string
	Routes   []Route
	Subjects []SubjectTrigger
	Crons    []CronTrigger
	// Calls bounds the app's concurrent calls by HTTP or a subject; 0: only Options.Calls bounds
	// them.
	Calls int
	// Await waits until the app can be called, or returns why it never can; nil: it can be called
	// now. Requests for an app with Await go to Options.Elsewhere; messages and schedules are
	// accepted, and wait.
	Await func(context.Context) error
}

// Target is the function or the workflow that a trigger starts.
type Target struct {
	Function, Workflow string
	// Wait says that the call returns the workflow's output.
	Wait bool
}

func (t Target) validate() error {
	switch {
	case t.Function == "" && t.Workflow == "":
		return errors.New("it has neither a function nor a workflow: name one")
	case t.Function != "" && t.Workflow != "":
		return fmt.Errorf("it has the function %q and the workflow %q: leave one out", t.Function, t.Workflow)
	case t.Wait && t.Workflow == "":
		return errors.New("only a workflow is waited for: leave wait out")
	}
	return nil
}

// Route is a path of an app.
type Route struct {
	// Methods are the methods; none: all. GET includes HEAD.
	Methods []string
	// Path is a pattern of net/http without method and host, "/rooms/{room}".
	Path string
	Target
	// HTTP says that the function takes and returns HTTP messages.
	HTTP bool
	// Streams says that the function may read its request and write its response in parts.
	Streams bool
	// WebSocket says that the function takes the events of WebSockets. It excludes Methods.
	WebSocket bool
	// Origins are the hosts whose pages may open the WebSocket, besides the host that serves it;
	// patterns of path.Match.
	Origins []string
	// Subprotocols are the protocols that the WebSocket speaks, the preferred first.
	Subprotocols []string
	// MaxBody is the largest body, 0 for Options.MaxBody.
	MaxBody outboard.Bytes
}

func (r *Route) validate() error {
	if err := r.Target.validate(); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(r.Path, "/"):
		return fmt.Errorf("path %q: it must begin with a slash", r.Path)
	case r.HTTP && r.Function == "":
		return errors.New("a workflow takes no HTTP messages: leave http out")
	case r.WebSocket && (r.Function == "" || r.HTTP || len(r.Methods) > 0):
		return errors.New("a WebSocket leads to a function, with no methods and no http")
	}
	for _, m := range r.Methods {
		if !isToken([]byte(m)) || m == http.MethodConnect || m != strings.ToUpper(m) {
			return fmt.Errorf("method %q: want one like GET", m)
		}
	}
	return nil
}

// SubjectTrigger makes a call for each message on a subject.
type SubjectTrigger struct {
	// Subject may have wildcards.
	Subject string
	// Queue is a queue group: each message goes to one of its members. "" is the app's own group,
	// so that each message goes to one node.
	Queue string
	Target
}

// CronTrigger makes a call at the times of a schedule.
type CronTrigger struct {
	// Schedule has five fields or is like "@hourly", see ParseSchedule.
	Schedule string
	// Zone is the time zone of the schedule; nil: UTC.
	Zone *time.Location
	Target
	// Body is the input.
	Body []byte
}

func (a *App) validate() error {
	if !validName(a.Name) {
		return outboard.Errorf(outboard.Invalid, "check app", "name %q: want letters, digits, -, _ and dots", a.Name)
	}
	for i := range a.Routes {
		if err := a.Routes[i].validate(); err != nil {
			return a.invalid("route "+a.Routes[i].Path, err)
		}
	}
	for i := range a.Subjects {
		if err := a.Subjects[i].validate(); err != nil {
			return a.invalid("subject "+a.Subjects[i].Subject, err)
		}
	}
	for i := range a.Crons {
		if err := a.Crons[i].validate(); err != nil {
			return a.invalid("cron "+a.Crons[i].Schedule, err)
		}
	}
	return nil
}

func (c *CronTrigger) validate() error {
	if _, err := ParseSchedule(c.Schedule); err != nil {
		return err
	}
	return c.Target.validate()
}

func (a *App) invalid(subject string, err error) error {
	return outboard.Errorf(outboard.Invalid, "check app "+a.Name, "%s: %w", subject, err)
}

// validName reports whether a name is a path segment without escapes.
func validName(name string) bool {
	return name != "" && len(name) <= 128 && name != "." && name != ".." &&
		!slices.ContainsFunc([]byte(name), func(c byte) bool {
			return !isAlphanumeric(c) && c != '-' && c != '_' && c != '.'
		})
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isToken reports whether b is a token of RFC 9110, section 5.6.2.
func isToken(b []byte) bool {
	for _, c := range b {
		if !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return len(b) > 0
}
