package client_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// serve starts a node that serves handler and returns a client of it.
func serve(t *testing.T, handler http.Handler) *client.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "outboard-client-")
	if err != nil {
		t.Fatal(err)
	}
	l, err := unixsock.Listen(filepath.Join(dir, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server, done := &http.Server{Handler: handler}, make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(net.Listener(l))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return &client.Client{Data: dir}
}

func fail(w http.ResponseWriter, err error) {
	w.WriteHeader(client.HTTPStatus(outboard.KindOf(err)))
	_ = json.NewEncoder(w).Encode(client.FailureOf(err))
}

func TestProblemsCross(t *testing.T) {
	want := []client.Problem{{File: "app.yaml", Line: 3, Column: 5, Text: "unknown key"}, {File: "flow.yaml", Text: "empty"}}
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, &outboard.Error{Op: "deploy shop", Kind: outboard.Invalid, Err: &client.ProblemsError{Problems: want}})
	}))
	_, err := c.Deploy(t.Context(), client.Deployment{})
	if diff := cmp.Diff(want, client.ProblemsOf(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if outboard.KindOf(err) != outboard.Invalid || err.Error() != "app.yaml:3:5: unknown key (and 1 more)" {
		t.Errorf("%v: %v", outboard.KindOf(err), err)
	}
}

// TestRequests documents the requests that the methods send, for authors of handlers.
func TestRequests(t *testing.T) {
	var got []string
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = append(got, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(text)))
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set(client.CallHeader, `{"call":"7","start":"reset"}`)
		_, _ = io.WriteString(w, "{}")
	}))
	ctx := t.Context()
	answer, cost, err := c.Invoke(ctx, client.Invocation{App: "shop", Function: "cart", Body: strings.NewReader("hello")})
	if err != nil || cost.Call != "7" || cost.Start != "reset" {
		t.Fatal(cost, err)
	}
	answer.Close()
	_, runErr := c.RunWorkflow(ctx, client.RunRequest{App: "shop", Workflow: "pay", ID: "a b", Wait: true})
	_, executionErr := c.Execution(ctx, "shop/a b", true)
	_, cancelErr := c.CancelExecution(ctx, "shop/1")
	_, putErr := c.PutArtifact(ctx, "sha256:00", "cart:v1", strings.NewReader("x"))
	has, hasErr := c.HasArtifact(ctx, "sha256:01")
	for _, err := range []error{
		runErr, executionErr, cancelErr, putErr, hasErr, c.RemoveApp(ctx, "shop"),
		c.Publish(ctx, "orders.new", strings.NewReader("m")), c.Logs(ctx, client.LogsRequest{App: "shop", Lines: 5}, func(client.LogLine) error { return nil }),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"POST /v1/apps/shop/functions/cart hello",
		"POST /v1/apps/shop/workflows/pay/executions?id=a+b&wait=true {}",
		"GET /v1/apps/shop/executions/a%20b?why=true",
		"POST /v1/apps/shop/executions/1/cancel",
		"PUT /v1/artifacts/sha256:00?name=cart%3Av1 x",
		"HEAD /v1/artifacts/sha256:01",
		"DELETE /v1/apps/shop",
		"POST /v1/subjects/orders.new m",
		"GET /v1/apps/shop/logs?follow=false&function=&lines=5",
	}
	if diff := cmp.Diff(want, got); diff != "" || has {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := c.Execution(ctx, "1", false); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("an id without its app: %v", err)
	}
}

func TestLogs(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"stream":"stdout","text":"one"}`+"\n"+`{"stream":"call","text":"two"}`)
		if strings.Contains(r.URL.Path, "cut") {
			_, _ = io.WriteString(w, "\n{")
		}
	}))
	var got []string
	yield := func(l client.LogLine) error { got = append(got, l.Text); return nil }
	if err := c.Logs(t.Context(), client.LogsRequest{App: "whole"}, yield); err != nil {
		t.Error(err)
	}
	if err := c.Logs(t.Context(), client.LogsRequest{App: "cut"}, yield); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("lines that are cut off: %v", err)
	}
	if diff := cmp.Diff([]string{"one", "two", "one", "two"}, got); diff != "" {
		t.Error(diff)
	}
}
