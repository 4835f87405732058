package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/gateway"
)

// A logQuery says which lines of an app's logs are wanted.
type logQuery struct {
	App      string `json:"app"`
	Function string `json:"function,omitempty"` // "" for all
	Lines    int    `json:"lines,omitempty"`    // the newest so many, 0 for all that are kept
	Follow   bool   `json:"follow,omitempty"`
}

// A logTeller is told lines of a call. No lines mean that all that was kept has been
// told. What it returns ends the telling.
type logTeller func([]client.LogLine) error

// logsHere tells this node's lines.
func (t *Tenant) logsHere(ctx context.Context, q logQuery, tell logTeller) error {
	var err error
	filter := gateway.Filter{App: q.App, Target: q.Function, Last: q.Lines, Told: func() { err = tell(nil) }}
	records := t.gateway.Logs(filter)
	if q.Follow {
		records = t.gateway.Follow(ctx, filter)
	}
	for record := range records {
		var lines []client.LogLine
		for _, line := range record.Lines() {
			lines = append(lines, t.lineOf(line))
		}
		if err == nil {
			err = tell(lines)
		}
		if err != nil {
			return err
		}
	}
	if !q.Follow {
		err = tell(nil)
	}
	return err
}

// logs tells the lines of a node.
func (p *peers) logs(ctx context.Context, node outboard.NodeID, q logQuery, tell logTeller) error {
	if p.conn == nil {
		return errors.New("this process has no node that could reach it")
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, headKey, string(text)))
	defer cancel()
	s, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+serviceName(p.tenant, node)+"/"+logsMethod)
	if err != nil {
		return err
	}
	if err := errors.Join(s.SendMsg(wrapperspb.Bytes(nil)), s.CloseSend()); err != nil {
		return err
	}
	for {
		var m wrapperspb.BytesValue
		if err := s.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var lines []client.LogLine
		if err := json.Unmarshal(m.GetValue(), &lines); err != nil {
			return fmt.Errorf("lines of a log: %w", err)
		}
		if err := tell(lines); err != nil {
			return err
		}
	}
}

// logsForPeer tells another node's process this one's lines.
func (t *Tenant) logsForPeer(s grpc.ServerStream) error {
	head, err := headOf(s.Context())
	if err != nil {
		return err
	}
	var q logQuery
	if err := json.Unmarshal(head, &q); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
		return err
	}
	return t.logsHere(s.Context(), q, func(lines []client.LogLine) error {
		text, err := json.Marshal(lines)
		if err != nil {
			return err
		}
		return s.SendMsg(wrapperspb.Bytes(text))
	})
}

// hasLogs refuses what nobody could write.
func (t *Tenant) hasLogs(ctx context.Context, q logQuery) error {
	v, err := t.awaitCurrent(ctx, q.App)
	if err != nil {
		return err
	}
	if v.functions[q.Function] == nil && v.workflows[q.Function] == nil && q.Function != "" {
		return outboard.Errorf(outboard.NotFound, "", "app %s has no function %q: it has %s", q.App, q.Function, list(v.functions))
	}
	return nil
}

// getLogs tells an app's logs on all nodes, a line of JSON each.
func (t *Tenant) getLogs(w http.ResponseWriter, r *http.Request) {
	q := logQuery{App: r.PathValue("app"), Function: r.URL.Query().Get("function"), Lines: numberOf(r, "lines"), Follow: boolOf(r, "follow")}
	if err := t.hasLogs(r.Context(), q); err != nil {
		api.Refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	_ = flush.Flush() // whoever follows wants to know that there is an app
	g := &logGatherer{
		query: q, self: t.config.Node, here: t.logsHere, there: t.peers.logs, members: &t.members,
		tell: func(lines []client.LogLine) error {
			for i := range lines {
				if err := out.Encode(&lines[i]); err != nil {
					return err
				}
			}
			return flush.Flush()
		},
	}
	_ = g.run(r.Context()) // the client hung up, or the app is gone
}
