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

// CallHeader is the header of a response to POST /v1/apps/APP/functions/FUNCTION that
// carries a CallCost in JSON.
const CallHeader = "Outboard-Call"

// CallCost is the time and the resources that a call of a function used.
type CallCost struct {
	// Call is the call's ID in the app's logs.
	Call string          `json:"call"`
	Node outboard.NodeID `json:"node"`
	// Start is how the call's instance was created: "cold", "clone" or "reset".
	Start string   `json:"start"`
	Took  Duration `json:"took"`
	Fuel  int64    `json:"fuel"`
	// Memory is the size of the instance's memory at the end of the call.
	Memory outboard.Bytes `json:"memory"`
	// Status is the status of an HTTP function's response, 0 for other functions.
	Status  int         `json:"status,omitempty"`
	Imports []ImportUse `json:"imports,omitempty"`
}

// An ImportUse is a resource that a call imported, with the cost of its use.
type ImportUse struct {
	// Name is the kind and name of the resource, "bucket:seats".
	Name   string   `json:"name"`
	Shared bool     `json:"shared,omitempty"`
	Calls  int      `json:"calls"`
	Took   Duration `json:"took"`
	// Waited is the part of Took that passed before the resource was available, for
	// example until a device was leased.
	Waited Duration       `json:"waited,omitempty"`
	Bytes  outboard.Bytes `json:"bytes,omitempty"`
}

// An Invocation is a direct call of one function.
type Invocation struct {
	App, Function string
	Body          io.Reader // nil for none
	// ContentType is the media type of Body, for an HTTP function.
	ContentType string
}

// Invoke calls a function and returns its response, which the caller must close.
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
		_ = response.Body.Close() // the response is discarded
		return nil, cost, outboard.Errorf(outboard.Protocol, "invoke "+i.App+"/"+i.Function, "%w", err)
	}
	return response.Body, cost, nil
}

// A LogLine is a line of an app's logs: a line that a function wrote, or the result of a call.
type LogLine struct {
	Time     time.Time       `json:"time"`
	Node     outboard.NodeID `json:"node"`
	App      string          `json:"app"`
	Function string          `json:"function,omitempty"`
	// Call is the ID of the call.
	Call string `json:"call,omitempty"`
	// Execution and Step identify the step of a workflow that made the call.
	Execution string `json:"execution,omitempty"`
	Step      string `json:"step,omitempty"`
	// Stream is "stdout" or "stderr"; "call" for a line about the call as a whole, which
	// has the fields below; or WarningStream for a line about a node that does not answer.
	Stream string `json:"stream"`
	Text   string `json:"text"`
	// Trigger is the cause of the call: "http", "subject", "cron", "workflow", "function" or
	// "invoke".
	Trigger string   `json:"trigger,omitempty"`
	Status  int      `json:"status,omitempty"`
	Took    Duration `json:"took,omitempty"`
	Fuel    int64    `json:"fuel,omitempty"`
}

// WarningStream is the stream of lines that name a node whose lines are missing.
const WarningStream = "warning"

// A LogsRequest selects lines of an app's logs.
type LogsRequest struct {
	App      string
	Function string // "" for all
	// Lines bounds the number of existing lines, the newest of them; 0 means all retained lines.
	Lines int
	// Follow continues with new lines until ctx ends.
	Follow bool
}

// Logs calls yield with the lines of an app's logs on all nodes, oldest first, and then, if
// r.Follow is set, with each new line. A line of WarningStream names a node that does not
// answer. An error of yield ends Logs, which returns it.
func (c *Client) Logs(ctx context.Context, r LogsRequest, yield func(LogLine) error) error {
	query := url.Values{"function": {r.Function}, "lines": {strconv.Itoa(r.Lines)}, "follow": {strconv.FormatBool(r.Follow)}}
	response, err := c.open(ctx, http.MethodGet, "/v1/apps/"+url.PathEscape(r.App)+"/logs?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var line LogLine
		if err := lines.Decode(&line); err != nil {
			return endOfLines(ctx, err)
		}
		if err := yield(line); err != nil {
			return err
		}
	}
}

// endOfLines returns the error of Logs for an error of its decoder: nil at a clean end.
func endOfLines(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == io.EOF: //nolint:errorlint // a wrapped io.EOF is not the end of the stream
		return nil
	}
	return outboard.Errorf(outboard.Unreachable, "logs", "the node ended: %w", err)
}

// Publish publishes a message on a subject. Its subscribers are functions of apps, and other
// clients of NATS if the pool uses an existing NATS cluster.
func (c *Client) Publish(ctx context.Context, subject string, message io.Reader) error {
	response, err := c.send(ctx, http.MethodPost, "/v1/subjects/"+url.PathEscape(subject), body{message, "application/octet-stream"})
	if err != nil {
		return err
	}
	return response.Body.Close()
}
