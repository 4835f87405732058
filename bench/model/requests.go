package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/oip"
)

// A statusError is an answer whose status is not OK.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.text) }

// httpClient keeps as many connections as there are clients.
//
//nolint:gochecknoglobals // as the standard library's
var httpClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}

// post sends a request and reads the answer to its end.
func post(ctx context.Context, url string, header http.Header, body []byte) error {
	r, err := open(ctx, url, header, body)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

func open(ctx context.Context, url string, header http.Header, body []byte) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		q.Header = header.Clone()
	}
	r, err := httpClient.Do(q)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		defer r.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<12))
		return nil, &statusError{r.StatusCode, strings.TrimSpace(string(text))}
	}
	return r, nil
}

// A preparedInfer is a request of the Open Inference Protocol.
type preparedInfer struct {
	header http.Header
	body   []byte
}

func prepare(timeout time.Duration, inputs ...model.Tensor) (*preparedInfer, error) {
	body, header, err := oip.EncodeRequest(inputs, nil, timeout)
	return &preparedInfer{header, body}, err
}

// at sends the request to a model of a node, over REST.
func (q *preparedInfer) at(ctx context.Context, url, name string) error {
	err := post(ctx, url+"/v2/models/"+name+"/infer", q.header, q.body)
	return err
}

// A completion is a request for text: a prompt of tokens, continued greedily.
type completion struct {
	Model       string             `json:"model"`
	Prompt      []int32            `json:"prompt"`
	MaxTokens   int                `json:"max_tokens"`
	Temperature float64            `json:"temperature"`
	LogitBias   map[string]float64 `json:"logit_bias"`
	Stream      bool               `json:"stream"`
	Options     map[string]any     `json:"stream_options,omitempty"`
}

func newCompletion(model string, prompt []int32, tokens int) *completion {
	return &completion{
		Model: model, Prompt: prompt, MaxTokens: tokens, Stream: true,
		LogitBias: map[string]float64{"2": -100}, // no end before MaxTokens
		Options:   map[string]any{"include_usage": true},
	}
}

// A stream records a client's view of an answer.
type stream struct {
	sent     time.Time
	first    time.Duration   // until the first part
	between  []time.Duration // times between parts
	tokens   int             // by the answer's usage
	cached   int
	text     strings.Builder
	finished bool
}

// complete streams a completion from the base URL of an OpenAI interface. emit, unless nil, is
// called after each part.
func complete(ctx context.Context, url string, q *completion, emit func(*stream)) (*stream, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	s := &stream{sent: time.Now()}
	r, err := open(ctx, url+"/v1/completions", http.Header{"Content-Type": {"application/json"}}, body)
	if err != nil {
		return s, err
	}
	defer r.Body.Close()
	last := s.sent
	for in := bufio.NewScanner(r.Body); ; {
		if !in.Scan() {
			return s, errors.Join(in.Err(), io.ErrUnexpectedEOF)
		}
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		switch {
		case !ok:
			continue
		case data == "[DONE]":
			return s, nil
		}
		now := time.Now()
		if counted, err := s.add(data); err != nil {
			return s, err
		} else if !counted {
			continue
		}
		if s.first == 0 {
			s.first = now.Sub(s.sent)
		} else {
			s.between = append(s.between, now.Sub(last))
		}
		if last = now; emit != nil {
			emit(s)
		}
	}
}

// add parses a part, and reports whether it has a token.
func (s *stream) add(data string) (counted bool, err error) {
	var part struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Text   string  `json:"text"`
			Finish *string `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			Tokens  int `json:"completion_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(data), &part); err != nil {
		return false, err
	}
	if len(part.Error) > 0 && string(part.Error) != "null" {
		return false, fmt.Errorf("the stream ended with %s", part.Error)
	}
	if part.Usage != nil {
		s.tokens, s.cached = part.Usage.Tokens, part.Usage.Details.Cached
	}
	for _, c := range part.Choices {
		s.text.WriteString(c.Text)
		s.finished = s.finished || c.Finish != nil
		counted = counted || c.Text != ""
	}
	return counted, nil
}
