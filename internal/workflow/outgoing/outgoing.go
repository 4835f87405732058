package outgoing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

const (
	// DefaultTimeout bounds a call whose task has no timeout.
	DefaultTimeout = 30 * time.Second
	// MaxResponse bounds a response's body.
	MaxResponse = 16 << 20
)

// Request is one call.
type Request struct {
	// Protocol is dsl.HTTP or dsl.OpenAPI, With the arguments, see dsl.Service.
	Protocol string
	With     map[string]any
	// Body replaces With["body"], and Type is its media type, where Stored is set.
	Body   []byte
	Type   string
	Stored bool
	// Key is the call's idempotency key.
	Key string
	// Timeout bounds the call; 0 means DefaultTimeout.
	Timeout time.Duration
}

// Result is the output of a call.
type Result struct {
	// Body is a JSON value, unless the response is neither JSON nor text.
	Body []byte
	// Type is the media type of Body.
	Type string
}

// Caller makes the calls of one app. All methods may be called by several goroutines.
type Caller struct {
	transport http.RoundTripper
	secret    func(name string) ([]byte, error)
	documents *documents
}

// New returns a caller. The transport sends one request at a time and refuses requests that the app
// may not send, with an error of the kind Denied; secret returns a secret of the app.
func New(transport http.RoundTripper, secret func(name string) ([]byte, error)) *Caller {
	return &Caller{transport: transport, secret: secret, documents: newDocuments()}
}

// Call makes a call. An error is a *dsl.Error, or of the kind Busy, which says that nothing was
// sent.
func (c *Caller) Call(ctx context.Context, req Request) (Result, error) {
	if req.Timeout <= 0 {
		req.Timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	result, err := c.call(ctx, &req)
	if err == nil || outboard.KindOf(err) == outboard.Busy {
		return result, err
	}
	return result, toError(err, req.Timeout)
}

func (c *Caller) call(ctx context.Context, req *Request) (Result, error) {
	m, err := c.message(ctx, req)
	if err != nil {
		return Result{}, err
	}
	if err := c.authenticate(m, req.With["authentication"]); err != nil {
		return Result{}, err
	}
	r, err := m.request(ctx)
	if err != nil {
		return Result{}, err
	}
	resp, body, err := c.send(r) //nolint:bodyclose // send has read and closed it
	if err != nil {
		return Result{}, err
	}
	if err := checkStatus(resp, body, req.With["redirect"] == true); err != nil {
		return Result{}, err
	}
	return m.result(req.With["output"], resp, body)
}

// message returns the request that the arguments describe.
func (c *Caller) message(ctx context.Context, req *Request) (*message, error) {
	if req.Protocol == dsl.OpenAPI {
		return c.operation(ctx, req.With)
	}
	return newMessage(req)
}

// send sends a request and reads the whole response.
func (c *Caller) send(r *http.Request) (*http.Response, []byte, error) {
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxResponse+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read the response: %w", err)
	}
	if len(body) > MaxResponse {
		return nil, nil, &dsl.Error{
			Type: dsl.ErrorRuntime, Status: http.StatusInsufficientStorage, Title: "a limit was reached",
			Detail: fmt.Sprintf("the response is larger than %v", outboard.Bytes(MaxResponse)),
		}
	}
	return resp, body, nil
}

// checkStatus returns an error for a status other than success.
func checkStatus(resp *http.Response, body []byte, redirect bool) error {
	last := 299
	if redirect {
		last = 399
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= last {
		return nil
	}
	title := http.StatusText(resp.StatusCode)
	if title == "" {
		title = "the service refused"
	}
	return &dsl.Error{Type: dsl.ErrorCommunication, Status: resp.StatusCode, Title: title, Detail: excerpt(resp, body)}
}

// toError converts an error to one of the DSL.
func toError(err error, limit time.Duration) error {
	if known, ok := errors.AsType[*dsl.Error](err); ok {
		return known
	}
	e := &dsl.Error{Type: dsl.ErrorCommunication, Status: http.StatusBadGateway, Title: "the call failed", Detail: err.Error()}
	var timeout net.Error
	switch kind := outboard.KindOf(err); {
	case kind == outboard.Denied:
		e.Type, e.Status, e.Title = dsl.ErrorAuthorization, http.StatusForbidden, "the request was not sent"
	case kind == outboard.Invalid:
		e.Type, e.Status, e.Title = dsl.ErrorValidation, http.StatusBadRequest, "the request is invalid"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e.Type, e.Status, e.Title, e.Detail = dsl.ErrorTimeout, http.StatusRequestTimeout, "timeout", fmt.Sprintf("there was no response within %v", limit)
	case kind == outboard.Exhausted:
		e.Type, e.Status, e.Title = dsl.ErrorRuntime, http.StatusInsufficientStorage, "a limit was reached"
	case kind == outboard.Unreachable:
		e.Status = http.StatusServiceUnavailable
	}
	return e
}

func invalid(format string, args ...any) error {
	return outboard.Errorf(outboard.Invalid, "", format, args...)
}
