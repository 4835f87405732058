package gateway

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// Parts of the responses that net/http's server writes itself, each with one write, to a request that
// it can't read.
const (
	errorResponse = "HTTP/1.1 "
	errorHeaders  = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
)

// unreadable replaces the responses of net/http's server to requests that it can't read by problem
// documents.
type unreadable struct {
	// reading is set while net/http reads a request, so that no other response is replaced.
	reading atomic.Bool
}

// write writes b to the connection of a client.
func (u *unreadable) write(b []byte, to func([]byte) (int, error)) (int, error) {
	if !u.reading.Load() {
		return to(b)
	}
	response, ok := replaceError(b)
	if !ok {
		return to(b)
	}
	if n, err := to(response); err != nil {
		return min(n, len(b)), err
	}
	return len(b), nil
}

// replaceError returns the problem document for an error of net/http's server.
func replaceError(b []byte) (response []byte, ok bool) {
	line, ok := bytes.CutPrefix(b, []byte(errorResponse))
	if !ok {
		return nil, false
	}
	line, body, ok := bytes.Cut(line, []byte(errorHeaders))
	if !ok || bytes.IndexByte(line, '\n') >= 0 {
		return nil, false
	}
	code, _, _ := strings.Cut(string(line), " ")
	status, err := strconv.Atoi(code)
	if err != nil || http.StatusText(status) == "" {
		return nil, false
	}
	return lastResponse(problem(status, errorDetail(status, string(body)))), true
}

// errorDetail returns the detail for an error of net/http's server, whose response has this body.
func errorDetail(status int, body string) string {
	if status == http.StatusRequestHeaderFieldsTooLarge {
		return "the head of the request is larger than " + strconv.Itoa(maxHead>>10) + " KiB: send less in its path and header fields, cookies among them"
	}
	text := strings.TrimPrefix(body, strconv.Itoa(status)+" "+http.StatusText(status))
	if text = strings.TrimPrefix(text, ": "); text == "" {
		text = "it is no message of HTTP/1.1"
	}
	return "the request can't be read: " + text
}
