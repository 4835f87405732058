package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// respond answers a conversation with a response.
func (s *Server) respond(w http.ResponseWriter, r *http.Request) error {
	var q responseRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	c, err := q.chat()
	if err != nil {
		return err
	}
	j, err := s.start(r.Context(), "resp_", c)
	if err != nil {
		return aboutInput(err)
	}
	defer j.release()
	b := &responseBuilder{response: newResponse(j, &q), job: j}
	if q.Stream {
		return b.stream(w, r)
	}
	answers, err := j.run(r.Context(), nil, b.add)
	if err != nil {
		return aboutInput(err)
	}
	if err := b.complete(answers); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, b.response)
	return nil
}

// stream sends the events of a response while it is generated.
func (b *responseBuilder) stream(w http.ResponseWriter, r *http.Request) error {
	out := newEvents(w)
	b.send = func(e *responseEvent) error { return out.sendNamed(e.Type, e) }
	answers, err := b.job.run(r.Context(), b.announce, b.add)
	switch {
	case err == nil:
		_ = b.complete(answers) // the client may have disconnected
	case !out.started:
		return aboutInput(err)
	default:
		_ = b.fail(aboutInput(err)) // the client may have disconnected
	}
	return nil
}

// notStored answers requests for earlier responses.
func notStored(_ http.ResponseWriter, r *http.Request) error {
	message := fmt.Sprintf("Response with id '%.100s' not found: responses are not stored", r.PathValue("id"))
	return &apiError{status: http.StatusNotFound, Type: "invalid_request_error", Message: message}
}

// aboutInput returns an error with the name that the prompt has in the request.
func aboutInput(err error) *apiError {
	e := toAPIError(err)
	if e.Param == "prompt" || e.Param == "messages" {
		e.Param = "input"
	}
	return e
}

// A response is the result of a request, or what is known of it while it is generated. Members that
// have only one value here are there since clients read them.
type response struct {
	ID                 string          `json:"id"`
	Object             string          `json:"object"`
	Created            int64           `json:"created_at"`
	Completed          *int64          `json:"completed_at"`
	Status             string          `json:"status"`
	Background         bool            `json:"background"`
	Error              *responseError  `json:"error"`
	Incomplete         *incompletion   `json:"incomplete_details"`
	Instructions       *string         `json:"instructions"`
	MaxOutputTokens    *int            `json:"max_output_tokens"`
	MaxToolCalls       *int            `json:"max_tool_calls"`
	Metadata           json.RawMessage `json:"metadata"`
	Model              string          `json:"model"`
	Output             []*outputItem   `json:"output"`
	ParallelToolCalls  bool            `json:"parallel_tool_calls"`
	PreviousResponseID *string         `json:"previous_response_id"`
	CacheKey           json.RawMessage `json:"prompt_cache_key"`
	Reasoning          struct {
		Effort  *string `json:"effort"`
		Summary *string `json:"summary"`
	} `json:"reasoning"`
	SafetyIdentifier json.RawMessage `json:"safety_identifier"`
	ServiceTier      string          `json:"service_tier"`
	Store            bool            `json:"store"`
	Temperature      float64         `json:"temperature"`
	PresencePenalty  float64         `json:"presence_penalty"`
	FrequencyPenalty float64         `json:"frequency_penalty"`
	Text             struct {
		Format    *textFormat `json:"format"`
		Verbosity string      `json:"verbosity"`
	} `json:"text"`
	ToolChoice  json.RawMessage `json:"tool_choice"`
	Tools       []responseTool  `json:"tools"`
	TopLogProbs int             `json:"top_logprobs"`
	TopP        float64         `json:"top_p"`
	Truncation  string          `json:"truncation"`
	Usage       *responseUsage  `json:"usage"`
	User        json.RawMessage `json:"user"`
}

// The states of a response and of its items.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// An incompletion is the reason for which a response is incomplete.
type incompletion struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	InputTokens  int `json:"input_tokens"`
	InputDetails struct {
		CachedTokens int `json:"cached_tokens"`
		// CacheWriteTokens are those that a client pays for; clients want the member.
		CacheWriteTokens int `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens  int `json:"output_tokens"`
	OutputDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int `json:"total_tokens"`
}

// response returns the counts in the form of responses.
func (c *tokenCounts) response() *responseUsage {
	u := &responseUsage{InputTokens: c.prompt, OutputTokens: c.generated, TotalTokens: c.prompt + c.generated}
	u.InputDetails.CachedTokens, u.OutputDetails.ReasoningTokens = c.cached, c.thought
	return u
}

// newResponse returns the response to a request before its first token, with the members of the
// request that it repeats.
func newResponse(j *job, q *responseRequest) *response {
	r := &response{
		ID: j.id, Object: "response", Created: j.created, Status: statusInProgress, Model: q.Model, Output: []*outputItem{},
		MaxOutputTokens: q.MaxOutputTokens, MaxToolCalls: q.MaxToolCalls, Metadata: q.Metadata, CacheKey: q.CacheKey,
		SafetyIdentifier: q.SafetyIdentifier, User: q.User, ParallelToolCalls: !j.single, ServiceTier: serviceTier,
		Temperature: valueOr(q.Temperature, 1), TopP: valueOr(q.TopP, 1), PresencePenalty: valueOr(q.PresencePenalty, 0),
		FrequencyPenalty: valueOr(q.FrequencyPenalty, 0), ToolChoice: q.ToolChoice, Tools: q.Tools, TopLogProbs: q.TopLogProbs, Truncation: truncationDisabled,
	}
	if q.truncates() {
		r.Truncation = truncationAuto
	}
	if q.Instructions != "" {
		r.Instructions = &q.Instructions
	}
	if q.Reasoning.Effort != "" {
		r.Reasoning.Effort = &q.Reasoning.Effort
	}
	if r.Text.Format, r.Text.Verbosity = q.Text.Format, "medium"; r.Text.Format == nil {
		r.Text.Format = &textFormat{Type: "text"}
	}
	if isNull(r.Metadata) {
		r.Metadata = json.RawMessage("{}")
	}
	if isNull(r.ToolChoice) {
		r.ToolChoice = json.RawMessage(`"auto"`)
	}
	if r.Tools == nil {
		r.Tools = []responseTool{}
	}
	return r
}

// isNull reports whether a member is missing, or has no value.
func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

func valueOr(value *float64, otherwise float64) float64 {
	if value == nil {
		return otherwise
	}
	return *value
}
