package tenant

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/tenant/logs"
	"github.com/outboard-run/outboard/internal/tenant/peer"
)

// localLogs sends the lines of an app's log on this node, as logs.Merger.Local does.
func localLogs(ctx context.Context, g *gateway.Gateway, self outboard.NodeID, q logs.Query, send logs.Send) error {
	var err error
	filter := gateway.Filter{App: q.App, Target: q.Function, Last: q.Lines, KeptSent: func() { err = send(nil) }}
	records := g.Logs(filter)
	if q.Follow {
		records = g.Follow(ctx, filter)
	}
	for record := range records {
		var lines []client.LogLine
		for _, line := range record.Lines() {
			lines = append(lines, logLine(self, line))
		}
		if err == nil {
			err = send(lines)
		}
		if err != nil {
			return err
		}
	}
	if !q.Follow {
		err = send(nil)
	}
	return err
}

func logLine(self outboard.NodeID, l gateway.Line) client.LogLine {
	if l.Time.IsZero() {
		l.Time = time.Now() // the line reports lost lines
	}
	return client.LogLine{
		Time: l.Time, Node: self, App: l.App, Function: l.Function, Call: l.Call, Execution: l.Execution, Step: l.Step,
		Stream: l.Stream, Text: l.Text, Trigger: string(l.Trigger), Status: l.Status, Took: client.Duration(l.Took), Fuel: l.Fuel,
	}
}

// logsAPI is the part of the local API that returns the logs of apps.
type logsAPI struct{ tenant *Tenant }

func (a *logsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/apps/{app}/logs", a.getLogs)
}

// check refuses a query for an app or a function that does not exist.
func (a *logsAPI) check(ctx context.Context, q logs.Query) error {
	v, err := a.tenant.apps.AwaitCurrent(ctx, q.App)
	if err != nil {
		return err
	}
	if v.Functions[q.Function] == nil && v.Workflows[q.Function] == nil && q.Function != "" {
		return outboard.Errorf(outboard.NotFound, "", "app %s has no function %q: it has %s", q.App, q.Function, list(v.Functions))
	}
	return nil
}

// getLogs sends an app's logs of all nodes, a line of JSON each.
func (a *logsAPI) getLogs(w http.ResponseWriter, r *http.Request) {
	q := logs.Query{App: r.PathValue("app"), Function: r.URL.Query().Get("function"), Lines: numberOf(r, "lines"), Follow: boolOf(r, "follow")}
	if err := a.check(r.Context(), q); err != nil {
		api.Refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	_ = flush.Flush() // the header tells the client that the app exists
	_ = a.merger(q, func(lines []client.LogLine) error {
		for i := range lines {
			if err := out.Encode(&lines[i]); err != nil {
				return err
			}
		}
		return flush.Flush()
	}).Run(r.Context()) // an error: the client hung up, or the app was removed
}

func (a *logsAPI) merger(q logs.Query, send logs.Send) *logs.Merger {
	t := a.tenant
	return &logs.Merger{
		Query: q, Self: t.config.Node, Members: t.members, Send: send,
		Local: func(ctx context.Context, q logs.Query, send logs.Send) error {
			return localLogs(ctx, t.gateway, t.config.Node, q, send)
		},
		Remote: func(ctx context.Context, node outboard.NodeID, q logs.Query, send logs.Send) error {
			return t.peers.Logs(ctx, node, &peer.LogQuery{App: q.App, Function: q.Function, Lines: int64(q.Lines), Follow: q.Follow}, send)
		},
	}
}
