package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// serveLines serves lines of JSON as the response to every request, and text behind them.
func serveLines(t *testing.T, text string, lines ...any) *client.Client {
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, l := range lines {
			_ = json.NewEncoder(w).Encode(l)
		}
		_, _ = io.WriteString(w, text)
	}))
}

func TestSubmitJob(t *testing.T) {
	running, ended := client.Job{ID: "job-1", State: client.JobRunning}, client.Job{ID: "job-1", State: client.JobSucceeded}
	events := 0
	c := serveLines(t, "", client.JobEvent{Job: &running}, client.JobEvent{Line: &client.JobLine{Text: "step 1"}}, client.JobEvent{Job: &ended})
	last, err := c.SubmitJob(t.Context(), client.JobSpec{}, func(client.JobEvent) error { events++; return nil })
	if err != nil || !last.State.Final() || events != 3 {
		t.Errorf("after %d events the job is %+v: %v", events, last, err)
	}
	c = serveLines(t, "", client.JobEvent{Job: &running}, client.JobEvent{Failed: client.FailureOf(outboard.Errorf(outboard.NotFound, "", "no dataset"))})
	if last, err = c.SubmitJob(t.Context(), client.JobSpec{}, func(client.JobEvent) error { return nil }); outboard.KindOf(err) != outboard.NotFound || last.State.Final() {
		t.Errorf("of a job that is refused: %+v, %v", last, err)
	}
	c = serveLines(t, `{"job":`, client.JobEvent{Job: &running})
	if _, err = c.SubmitJob(t.Context(), client.JobSpec{}, func(client.JobEvent) error { return nil }); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("of a node that ends in the middle: %v", err)
	}
	if _, err = c.SubmitJob(t.Context(), client.JobSpec{}, func(client.JobEvent) error { return io.ErrClosedPipe }); err != io.ErrClosedPipe { //nolint:errorlint // it is returned as it is
		t.Errorf("an error of the caller's became %v", err)
	}
}

func TestChat(t *testing.T) {
	type line map[string]any
	text := func(s string) line { return line{"message": client.ChatMessage{Role: "assistant", Content: s}} }
	last := text("")
	last["done"], last["eval_count"], last["prompt_eval_duration"] = true, 7, 1500
	for name, test := range map[string]struct {
		lines []any
		text  string
		want  string
		kind  outboard.Kind
	}{
		"an answer":           {[]any{text("Mont "), text("Blanc"), last}, "", "Mont Blanc", 0},
		"ends in the middle":  {[]any{text("Mont ")}, "", "Mont ", outboard.Protocol},
		"is not JSON":         {[]any{text("Mont ")}, "<html>", "Mont ", outboard.Protocol},
		"fails in the middle": {[]any{text("Mont "), line{"error": "the node has left"}}, "", "Mont ", outboard.Other},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			u, err := serveLines(t, test.text, test.lines...).Chat(t.Context(), client.ChatRequest{}, func(s string) error { got += s; return nil })
			if got != test.want || (err != nil) != (name != "an answer") || err != nil && outboard.KindOf(err) != test.kind {
				t.Errorf("the text is %q, the error %v", got, err)
			}
			if err == nil && (u.GeneratedTokens != 7 || u.Prefill != 1500) {
				t.Errorf("the usage is %+v", u)
			}
		})
	}
}
