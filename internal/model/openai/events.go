package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// events writes server-sent events (HTML standard, section 9.2), each with a JSON value.
type events struct {
	w       http.ResponseWriter
	flush   *http.ResponseController
	buf     bytes.Buffer
	started bool
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, flush: http.NewResponseController(w)}
}

func (e *events) send(v any) error { return e.sendNamed("", v) }

// sendNamed sends an event with a name, or without one if it is empty.
func (e *events) sendNamed(name string, v any) error {
	e.buf.Reset()
	if name != "" {
		e.buf.WriteString("event: " + name + "\n")
	}
	e.buf.WriteString("data: ")
	if err := json.NewEncoder(&e.buf).Encode(v); err != nil {
		return err
	}
	e.buf.WriteByte('\n')
	return e.write(e.buf.Bytes())
}

func (e *events) write(b []byte) error {
	if !e.started {
		e.started = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.flush.Flush()
}

func (e *events) done() error {
	_ = e.write([]byte("data: [DONE]\n\n")) // the client may have disconnected
	return nil
}

// fail returns the error if nothing was sent yet, and otherwise sends it as an event.
func (e *events) fail(err error) error {
	if !e.started {
		return err
	}
	_ = e.send(map[string]any{"error": toAPIError(err)}) // the client may have disconnected
	return nil
}
