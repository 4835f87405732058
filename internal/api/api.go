// Package api serves HTTP APIs on local sockets, for the node and for tenants' processes, and
// encodes their responses and errors.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// Serve serves HTTP on l until ctx ends, which also ends the contexts of requests. Requests may
// take up to grace to return; after that Serve closes their connections and returns an error.
func Serve(ctx context.Context, l net.Listener, h http.Handler, grace time.Duration) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(end)
	if err != nil {
		_ = server.Close() // err has the reason
	}
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Answer returns a handler that responds with the result of f in JSON, or with its error.
func Answer[T any](f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		if err != nil {
			Refuse(w, err)
			return
		}
		text, err := json.Marshal(out)
		if err != nil { // a value that another machine has chosen, such as a time
			Refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(text, '\n')) // an error means that the client has disconnected
	}
}

// Refuse responds with an error: the HTTP status of its kind and a client.Failure.
func Refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
	_ = json.NewEncoder(w).Encode(client.FailureOf(err)) // an error means that the client has disconnected
}

// Nothing is the response of a request without a result.
type Nothing struct{}
