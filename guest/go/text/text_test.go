//go:build !wasip1

package text_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/guest/go/text"
)

func TestComplete(t *testing.T) {
	text.Fake = func(model string, r text.Request) ([]string, error) {
		if model != "small" || r.MaxTokens != 7 || r.Options["seed"] != 3.0 || len(r.Messages) != 1 || r.Messages[0] != (text.Message{Role: "user", Content: "hi"}) {
			t.Errorf("%s got %+v", model, r)
		}
		return []string{"Good ", "day"}, nil
	}
	defer func() { text.Fake = nil }()
	m, err := text.Load("small")
	if err != nil {
		t.Fatal(err)
	}
	r := text.Prompt("hi")
	r.MaxTokens, r.Options = 7, map[string]any{"seed": 3}
	if answer, err := m.Complete(r); answer != "Good day" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	var seen []string
	for chunk, err := range m.Chunks(r) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, chunk.Text+"|"+chunk.Finish)
		if len(seen) == 1 && strings.Contains(string(chunk.Raw), "finish_reason") {
			t.Errorf("the first chunk is %s", chunk.Raw)
		}
	}
	if got := strings.Join(seen, ","); got != "Good |,day|stop" {
		t.Errorf("chunks %q", got)
	}
}

func TestErrors(t *testing.T) {
	if _, err := text.Complete("small", "hi"); err == nil || !strings.Contains(err.Error(), "text.Fake") {
		t.Errorf("without a fake: %v", err)
	}
	busy := errors.New("busy")
	text.Fake = func(string, text.Request) ([]string, error) { return nil, busy }
	defer func() { text.Fake = nil }()
	if _, err := text.Complete("small", "hi"); !errors.Is(err, busy) {
		t.Errorf("got %v", err)
	}
}
