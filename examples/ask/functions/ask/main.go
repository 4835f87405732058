// Command ask answers a question about a text with a language model.
//
//	POST /      {"text": "...", "question": "..."}; the answer is text
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/outboard-run/outboard/guest/go/nn"
	"github.com/outboard-run/outboard/guest/go/text"
	"github.com/outboard-run/outboard/guest/go/web"
)

func init() { web.Handle(http.HandlerFunc(answerQuestion)) }

func main() {}

// model is the name under which the model is pushed.
const model = "assistant"

// Bounds of a request in bytes, and of an answer in tokens.
const (
	maxBody   = 64 << 10
	maxAnswer = 100
)

type question struct {
	Text     string `json:"text"`
	Question string `json:"question"`
}

func answerQuestion(w http.ResponseWriter, r *http.Request) {
	q, err := parse(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := complete(q)
	if err != nil {
		http.Error(w, err.Error(), status(err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, answer+"\n") // a response does not fail
}

func parse(body io.Reader) (question, error) {
	var q question
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(&q); err != nil {
		return q, fmt.Errorf(`want {"text": "...", "question": "..."} of at most 64 KiB: %w`, err)
	}
	if strings.TrimSpace(q.Text) == "" || strings.TrimSpace(q.Question) == "" {
		return q, errors.New("text and question must not be empty")
	}
	return q, nil
}

// complete returns the model's answer.
func complete(q question) (string, error) {
	m, err := text.Load(model)
	if err != nil {
		return "", err
	}
	return m.Complete(text.Request{
		Messages: []text.Message{
			{Role: "system", Content: "Answer the question from the text alone, in one or two sentences."},
			{Role: "user", Content: "Text: " + q.Text + "\nQuestion: " + q.Question},
		},
		MaxTokens: maxAnswer,
		Options:   map[string]any{"temperature": 0.5, "seed": 1}, // the same question has the same answer
	})
}

// status returns the status of HTTP for an error of the model.
func status(err error) int {
	var failed *text.Error
	if errors.As(err, &failed) && (failed.Code == nn.InvalidArgument || failed.Code == nn.TooLarge) {
		return http.StatusBadRequest // a text longer than the model's context
	}
	return http.StatusServiceUnavailable
}
