package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
)

// Problem is a document of RFC 9457. Its type is "about:blank".
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is the error's text.
	Detail string `json:"detail,omitempty"`
	// Kind is the outboard.Kind of a call's error.
	Kind string `json:"kind,omitempty"`
	// Limit is the limit that was reached.
	Limit string `json:"limit,omitempty"`
	// Trace is the call's trace ID in logs and traces.
	Trace string `json:"trace,omitempty"`
}

// NewProblem returns the problem for a call's error.
func NewProblem(err error) Problem {
	p := problem(Status(err), detailOf(err))
	if isFileError(err) {
		p.Detail = "this node can't store or read what the request needs at the moment" // err names paths
	}
	p.Kind, p.Limit = outboard.KindOf(err).String(), limitOf(err)
	return p
}

func problem(status int, detail string) Problem {
	title := http.StatusText(status)
	if title == "" {
		title = "Client Closed Request"
	}
	return Problem{Title: title, Status: status, Detail: detail}
}

// maxDetail bounds the detail; logs have the whole error.
const maxDetail = 512

// detailOf returns the first line of an error: later lines have a guest's stack and the like.
func detailOf(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "..."
	}
	return text
}

// body returns the encoded document.
func (p Problem) body() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		return []byte("{}") // a Problem has no values that can't be encoded
	}
	return append(text, '\n')
}

// retryAfter is the Retry-After in seconds: queues here are short.
const retryAfter = "1"

// retryable reports whether the same request may succeed later.
func (p *Problem) retryable() bool {
	return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable || p.Limit == "storage"
}

// Write answers a request with the problem.
func (p Problem) Write(w http.ResponseWriter) {
	h, body := w.Header(), p.body()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.retryable() {
		h.Set("Retry-After", retryAfter)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone needs no response
}
