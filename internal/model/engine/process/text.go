package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A textModel is a model for text that a server executes.
type textModel struct {
	*connection
	dialect dialect
	client  *http.Client
	info    engine.Info
	name    string // the server's name of the model
}

var _ engine.TextModel = (*textModel)(nil)

// idleConnections bounds the connections to a server that are kept for later requests.
const idleConnections = 256

func newTextModel(server Server) *textModel {
	return &textModel{
		connection: newConnection(server), dialect: dialects[server.Kind],
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idleConnections}},
	}
}

// Info implements engine.Model.
func (m *textModel) Info() engine.Info { return m.info }

// Close implements engine.Model. It ends a server that Load has started.
func (m *textModel) Close() error {
	m.end()
	m.client.CloseIdleConnections()
	return nil
}

// checkReady implements serverModel.
func (m *textModel) checkReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/health", http.NoBody)
	if err != nil {
		return err
	}
	r, err := m.client.Do(request)
	if err != nil {
		return err
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s/health: status %d", m.url, r.StatusCode)
	}
	return nil
}

// describe implements serverModel.
func (m *textModel) describe(ctx context.Context) (err error) {
	m.info, err = m.dialect.describe(ctx, m)
	return err
}

// Limits of a server's answers.
const (
	maxAnswer = 64 << 20
	maxEvent  = 4 << 20
	maxReason = 1 << 10
	callLimit = 30 * time.Second
)

// call posts a request and decodes the answer.
func (m *textModel) call(ctx context.Context, path string, in, out any) error {
	r, err := m.post(ctx, path, in)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	return decode(r.Body, path, out)
}

// get decodes the answer to a GET request.
func (m *textModel) get(ctx context.Context, path string, out any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, http.NoBody)
	if err != nil {
		return err
	}
	r, err := m.do(request)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	return decode(r.Body, path, out)
}

func decode(body io.Reader, path string, out any) error {
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return outboard.Errorf(outboard.Protocol, "model server", "its answer to %s: %w", path, err)
	}
	return nil
}

func (m *textModel) post(ctx context.Context, path string, in any) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	// The request may be sent again if the server has just closed an idle connection; net/http
	// requires this key for that, and does not send it without a value.
	request.Header["Idempotency-Key"] = nil
	return m.do(request)
}

func (m *textModel) do(request *http.Request) (*http.Response, error) {
	if m.closing.Load() {
		return nil, errClosed
	}
	r, err := m.client.Do(request)
	if ctx := request.Context(); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, m.explain(request.Context(), outboard.Errorf(outboard.Unreachable, "model server", "%w", err))
	}
	if r.StatusCode != http.StatusOK {
		defer r.Body.Close()
		return nil, statusError(r)
	}
	return r, nil
}

// statusError returns the error of a server's response.
func statusError(r *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(r.Body, maxReason)) // the part that could be read
	kind := outboard.Other
	switch {
	case r.StatusCode == http.StatusTooManyRequests:
		kind = outboard.Exhausted
	case r.StatusCode == http.StatusServiceUnavailable || r.StatusCode == http.StatusBadGateway:
		kind = outboard.Unreachable
	case r.StatusCode >= 400 && r.StatusCode < 500:
		kind = outboard.Invalid
	}
	return outboard.Errorf(kind, "model server", "status %d: %s", r.StatusCode, strings.ToValidUTF8(strings.TrimSpace(string(text)), "?"))
}

// Tokenize implements engine.TextModel.
func (m *textModel) Tokenize(ctx context.Context, t engine.Text) ([]int32, error) {
	if t.Suffix != "" {
		return nil, outboard.Errorf(outboard.Invalid, "suffix", "it is not supported for the models of a third-party server")
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return m.dialect.tokenize(ctx, m, t.Content, t.Special)
}

// Render implements engine.TextModel.
func (m *textModel) Render(ctx context.Context, c engine.Conversation) (string, error) {
	return m.dialect.render(ctx, m, c)
}

// Embed implements engine.TextModel, by the server's OpenAI interface.
func (m *textModel) Embed(ctx context.Context, tokens []int32) ([]float32, error) {
	var reply struct {
		Data []struct {
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := m.call(ctx, "/v1/embeddings", map[string]any{"model": m.name, "input": tokens}, &reply); err != nil {
		return nil, err
	}
	if len(reply.Data) != 1 || len(reply.Data[0].Embedding) == 0 {
		return nil, outboard.Errorf(outboard.Protocol, "embed", "the model server returned %d embeddings", len(reply.Data))
	}
	return reply.Data[0].Embedding, nil
}

// Generate implements engine.TextModel.
func (m *textModel) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	if err := m.check(&g); err != nil {
		return engine.Usage{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := time.Now()
	path, body := m.dialect.request(m, &g)
	r, err := m.post(ctx, path, body)
	if err != nil {
		return engine.Usage{}, err
	}
	defer r.Body.Close()
	a := &answer{usage: engine.Usage{PromptTokens: len(g.Prompt)}, limit: g.MaxTokens}
	var first time.Time
	err = events(ctx, r.Body, func(data []byte) error {
		tokens, err := m.dialect.event(m, a, data)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // the event was cut off
		}
		if err != nil {
			return err
		}
		if len(tokens) > 0 && first.IsZero() {
			first = time.Now()
		}
		for _, t := range tokens {
			if t, certain := a.add(t); !certain {
				continue
			} else if err := emit(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && !a.finished {
		err = outboard.Errorf(outboard.Unreachable, "generate", "the stream of the model server ended early")
	}
	if outboard.KindOf(err) == outboard.Unreachable {
		err = m.explain(ctx, err)
	}
	if !first.IsZero() {
		a.usage.Prefill, a.usage.Decode = first.Sub(sent), time.Since(first)
	}
	a.usage.CachedTokens = min(max(a.usage.CachedTokens, 0), a.usage.PromptTokens) // as the server says
	return a.usage, err
}

// An answer is the state of a stream.
type answer struct {
	usage    engine.Usage
	limit    int
	finished bool
	// held is the last token that the limit allows, until the server reports the finish reason,
	// which it does in a separate event.
	held *engine.Token
	// received and text are the tokens and the text of the events so far, for servers that repeat them.
	received int
	text     string
}

// add counts a token, and reports whether it is known whether the token is the last.
func (a *answer) add(t engine.Token) (engine.Token, bool) {
	if a.finished {
		return t, false // ignore events after the end
	}
	if a.held != nil {
		a.held.Text, a.held.Last = a.held.Text+t.Text, t.Last
		a.finished = t.Last != ""
		return *a.held, a.finished
	}
	a.usage.GeneratedTokens++
	a.finished = t.Last != ""
	if !a.finished && a.usage.GeneratedTokens == a.limit {
		a.held = &t
		return t, false
	}
	return t, true
}

// check refuses requests that servers would misunderstand.
func (m *textModel) check(g *engine.Generation) error {
	invalid := func(format string, args ...any) error {
		return outboard.Errorf(outboard.Invalid, "generate", format, args...)
	}
	available := m.info.Context - len(g.Prompt)
	switch {
	case len(g.Prompt) == 0:
		return invalid("the prompt is empty")
	case g.Continued < 0 || g.Continued >= len(g.Prompt) || g.MaxTokens < 0:
		return invalid("%d of %d tokens are continued, at most %d are to come", g.Continued, len(g.Prompt), g.MaxTokens)
	case g.Continued > 0 && g.Grammar != "":
		return invalid("a model server can't go on in the middle of a text with a grammar")
	case m.info.Context > 0 && available < 1:
		return engine.ErrTooLong(strconv.Itoa(len(g.Prompt)), m.info.Context)
	}
	for i, token := range g.Prompt {
		if token < 0 || m.info.Vocabulary > 0 && int(token) >= m.info.Vocabulary {
			return invalid("token %d is %d, and the vocabulary has %d", i, token, m.info.Vocabulary)
		}
	}
	if slices.Contains(g.Stop, "") {
		return invalid("a stop text is empty")
	}
	if m.info.Context > 0 && (g.MaxTokens == 0 || g.MaxTokens > available) {
		g.MaxTokens = available
	}
	return nil
}

var errStopped = errors.New("the stream has its last event")

// events calls f with the data of each server-sent event, until the stream ends.
func events(ctx context.Context, body io.Reader, f func(data []byte) error) error {
	in := bufio.NewScanner(body)
	in.Buffer(nil, maxEvent)
	for in.Scan() {
		data, ok := bytes.CutPrefix(in.Bytes(), []byte("data:"))
		if data = bytes.TrimSpace(data); !ok || len(data) == 0 {
			continue
		}
		if string(data) == "[DONE]" {
			return nil
		}
		if err := f(data); err != nil {
			if errors.Is(err, errStopped) {
				return nil
			}
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := in.Err(); err != nil {
		return outboard.Errorf(outboard.Unreachable, "generate", "the stream of the model server: %w", err)
	}
	return nil
}

// Stats implements engine.TextModel, with the server's metrics.
func (m *textModel) Stats() engine.TextStats {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/metrics", http.NoBody)
	if err != nil {
		return engine.TextStats{}
	}
	r, err := m.do(request)
	if err != nil {
		return engine.TextStats{} // the server has no metrics
	}
	defer r.Body.Close()
	return parseMetrics(io.LimitReader(r.Body, maxAnswer))
}

// parseMetrics reads the metrics of llama-server, vLLM and SGLang (Prometheus's text format).
func parseMetrics(body io.Reader) (s engine.TextStats) {
	for in := bufio.NewScanner(body); in.Scan(); {
		at := strings.LastIndexByte(in.Text(), ' ')
		if at < 0 {
			continue
		}
		name, _, _ := strings.Cut(in.Text()[:at], "{")
		n, err := strconv.ParseFloat(in.Text()[at+1:], 64)
		if err != nil || !(n >= 0) { // also not a number
			continue
		}
		switch name {
		case "vllm:num_requests_running", "llamacpp:requests_processing", "sglang:num_running_reqs":
			s.Running += int(n)
		case "vllm:num_requests_waiting", "llamacpp:requests_deferred", "sglang:num_queue_reqs":
			s.Waiting += int(n)
		case "vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total", "sglang:prompt_tokens_total":
			s.PromptTokens += int64(n)
		case "vllm:generation_tokens_total", "llamacpp:tokens_predicted_total", "sglang:generation_tokens_total":
			s.GeneratedTokens += int64(n)
		case "vllm:prefix_cache_hits_total", "sglang:cached_tokens_total":
			s.CachedTokens += int64(n)
		case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio":
			s.StateUsage = max(s.StateUsage, n) // of a server with several engines, the fullest
		}
	}
	return s
}
