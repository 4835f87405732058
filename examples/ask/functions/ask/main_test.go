package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/guest/go/nn"
	"github.com/outboard-run/outboard/guest/go/text"
)

// The function tested without Outboard: text.Fake is the model.
func TestAsk(t *testing.T) {
	text.Fake = func(model string, r text.Request) ([]string, error) {
		if model != "assistant" || len(r.Messages) != 2 || r.MaxTokens != maxAnswer {
			t.Errorf("%s got %+v", model, r)
		}
		switch content := r.Messages[1].Content; {
		case strings.Contains(content, "busy"):
			return nil, &text.Error{Op: "start", Code: nn.Busy, Text: "too many requests"}
		case strings.Contains(content, "long"):
			return nil, &text.Error{Op: "next", Code: nn.InvalidArgument, Text: "longer than the context"}
		}
		return []string{"At ", "noon."}, nil
	}
	defer func() { text.Fake = nil }()
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"a question":  {`{"text":"The ferry leaves at noon.","question":"When?"}`, http.StatusOK, "At noon.\n"},
		"no question": {`{"text":"The ferry leaves at noon."}`, http.StatusBadRequest, "must not be empty"},
		"no JSON":     {`when?`, http.StatusBadRequest, "want {"},
		"busy":        {`{"text":"busy","question":"When?"}`, http.StatusServiceUnavailable, "too many requests"},
		"too long":    {`{"text":"long","question":"When?"}`, http.StatusBadRequest, "longer than"},
	} {
		w := httptest.NewRecorder()
		answerQuestion(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(c.body)))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}
