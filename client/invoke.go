package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
)

// CallHeader is the header of an answer to POST /v1/apps/APP/functions/FUNCTION that
// has a CallCost in JSON.
const CallHeader = "Outboard-Call"

// CallCost is what a call of a function took.
type CallCost struct {
	// Call names the call in the app's logs.
	Call string          `json:"call"`
	Node outboard.NodeID `json:"node"`
	// Start is how it came by its instance: "cold", "clone" or "reset".
	Start string   `json:"start"`
	Took  Duration `json:"took"`
	Fuel  int64    `json:"fuel"`
	// Memory is how large the instance's memory was at the end.
	Memory outboard.Bytes `json:"memory"`
	// Status is what an HTTP function answered, 0 for another one.
	Status  int         `json:"status,omitempty"`
	Imports []ImportUse `json:"imports,omitempty"`
}

// An ImportUse is a resource that a call imported, and what that cost.
type ImportUse struct {
	// Name is its kind and name, "bucket:seats".
	Name   string   `json:"name"`
	Shared bool     `json:"shared,omitempty"`
	Calls  int      `json:"calls"`
	Took   Duration `json:"took"`
	// Waited is how much of it the import itself took: a device may have to be waited for.
	Waited Duration       `json:"waited,omitempty"`
	Bytes  outboard.Bytes `json:"bytes,omitempty"`
}

// An Invocation is one call of a function by hand.
type Invocation struct {
	App, Function string
	Body          io.Reader // nil for none
	// ContentType is of the body, for an HTTP function.
	ContentType string
}

// Invoke calls a function. The answer is the function's, and must be closed.
func (c *Client) Invoke(ctx context.Context, i Invocation) (io.ReadCloser, CallCost, error) {
	var cost CallCost
	path := "/v1/apps/" + url.PathEscape(i.App) + "/functions/" + url.PathEscape(i.Function)
	response, err := c.send(ctx, http.MethodPost, path, body{i.Body, i.ContentType})
	if err != nil {
		return nil, cost, err
	}
	if text := response.Header.Get(CallHeader); text != "" {
		err = json.Unmarshal([]byte(text), &cost)
	}
	if err != nil {
		_ = response.Body.Close() // the answer is lost already
		return nil, cost, outboard.Errorf(outboard.Protocol, "invoke "+i.App+"/"+i.Function, "%w", err)
	}
	return response.Body, cost, nil
}

// A LogLine is a line of an app's logs: something that a function wrote, or how a call
// of it ended.
type LogLine struct {
	Time     time.Time       `json:"time"`
	Node     outboard.NodeID `json:"node"`
	App      string          `json:"app"`
	Function string          `json:"function,omitempty"`
	// Call names the call.
	Call string `json:"call,omitempty"`
	// Execution and Step say for whom it was, where that was a workflow.
	Execution string `json:"execution,omitempty"`
	Step      string `json:"step,omitempty"`
	// Stream is "stdout", "stderr", or "call" for a line about the call as a whole, which
	// has the fields below, WarningStream for one about a node that does not answer.
	Stream string `json:"stream"`
	Text   string `json:"text"`
	// Trigger is what started the call: "http", "subject", "cron", "workflow",
	// "function", "invoke".
	Trigger string   `json:"trigger,omitempty"`
	Status  int      `json:"status,omitempty"`
	Took    Duration `json:"took,omitempty"`
	Fuel    int64    `json:"fuel,omitempty"`
}

// WarningStream is the stream of lines that say whose lines are missing.
const WarningStream = "warning"

// A LogsRequest says which lines of an app's logs are wanted.
type LogsRequest struct {
	App      string
	Function string // "" for all
	// Lines is how many of the newest lines come first, 0 for all that are kept.
	Lines int
	// Follow goes on with lines as they come, until ctx ends.
	Follow bool
}

// Logs tells the lines of an app's logs, of all nodes, oldest first; those that Follow adds come
// as they happen. A line of WarningStream names a node that does not answer.
func (c *Client) Logs(ctx context.Context, r LogsRequest, tell func(LogLine) error) error {
	query := url.Values{"function": {r.Function}, "lines": {strconv.Itoa(r.Lines)}, "follow": {strconv.FormatBool(r.Follow)}}
	response, err := c.open(ctx, http.MethodGet, "/v1/apps/"+url.PathEscape(r.App)+"/logs?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var line LogLine
		if err := lines.Decode(&line); err != nil {
			return endOf(ctx, err)
		}
		if err := tell(line); err != nil {
			return err
		}
	}
}

// endOf is what the end of a stream of lines means.
func endOf(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == io.EOF: //nolint:errorlint // io.EOF itself is the end, wrapped it is not
		return nil
	}
	return outboard.Errorf(outboard.Unreachable, "logs", "the node ended: %w", err)
}

// Publish sends a message on a subject to whoever subscribed: functions of apps, and
// others where the pool's state is in an existing NATS cluster.
func (c *Client) Publish(ctx context.Context, subject string, message io.Reader) error {
	response, err := c.send(ctx, http.MethodPost, "/v1/subjects/"+url.PathEscape(subject), body{message, "application/octet-stream"})
	if err != nil {
		return err
	}
	return response.Body.Close()
}
