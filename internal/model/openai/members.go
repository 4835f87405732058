package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// labels are members that have no effect on an answer: they name the client, or a group of requests, to
// OpenAI's service, or may make an answer faster there.
type labels struct {
	User             json.RawMessage `json:"user"`
	SafetyIdentifier json.RawMessage `json:"safety_identifier"`
	Metadata         json.RawMessage `json:"metadata"`
	CacheKey         json.RawMessage `json:"prompt_cache_key"`
	CacheOptions     json.RawMessage `json:"prompt_cache_options"`
	CacheRetention   json.RawMessage `json:"prompt_cache_retention"`
	Prediction       json.RawMessage `json:"prediction"`
}

// fixed are members of chat/completions that may only have the values which describe what this
// server does anyway.
type fixed struct {
	Store            json.RawMessage `json:"store"`
	Verbosity        json.RawMessage `json:"verbosity"`
	Functions        json.RawMessage `json:"functions"`
	FunctionCall     json.RawMessage `json:"function_call"`
	Audio            json.RawMessage `json:"audio"`
	Moderation       json.RawMessage `json:"moderation"`
	WebSearchOptions json.RawMessage `json:"web_search_options"`
}

func (f *fixed) check() error {
	return checkFixed([]fixedMember{
		{"store", f.Store, []string{"false"}, "answers are not stored"},
		{"verbosity", f.Verbosity, []string{`"medium"`}, "ask for the length in the prompt, or set max_completion_tokens"},
		{"functions", f.Functions, []string{"[]"}, "use tools"},
		{"function_call", f.FunctionCall, []string{`"auto"`, `"none"`}, "use tool_choice"},
		{"audio", f.Audio, nil, "this model writes text only"},
		{"moderation", f.Moderation, nil, "this server moderates nothing"},
		{"web_search_options", f.WebSearchOptions, nil, "the models have no access to the web"},
	})
}

// A fixedMember is a member that may only have the values which describe what this server does anyway.
type fixedMember struct {
	name    string
	value   json.RawMessage
	allowed []string
	remedy  string
}

// checkFixed refuses members with other values than the allowed ones and null.
func checkFixed(members []fixedMember) error {
	for _, m := range members {
		value := string(bytes.TrimSpace(m.value))
		if value != "" && value != "null" && !slices.Contains(m.allowed, value) {
			return invalid(m.name, fmt.Sprintf("%s is %.100s, which is not supported: %s", m.name, value, m.remedy))
		}
	}
	return nil
}

// serviceTiers are the values of service_tier. The answer says which tier executed the request; OpenAI's
// service may choose another one than the request names, too.
func serviceTiers() []string { return []string{"", "auto", "default", "flex", "priority", "scale"} }

// serviceTier is the tier that executes all requests.
const serviceTier = "default"

// tierOf returns the tier that an answer names, "" if its request names none.
func tierOf(requested string) (string, error) {
	switch {
	case requested == "":
		return "", nil
	case !slices.Contains(serviceTiers(), requested):
		return "", invalid("service_tier", fmt.Sprintf("service_tier is %.100q: auto, default, flex, priority and scale are accepted", requested))
	}
	return serviceTier, nil
}

// decodeMembers decodes a request. Unknown members are an error: OpenAI's service refuses them, and
// an extension of another server changes the answer that its client expects.
func decodeMembers(body io.Reader, v any) error {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if name, unknown := unknownMember(err); unknown {
		e := invalid(name, "Unknown parameter: '"+name+"'.")
		e.Code = "unknown_parameter"
		return e
	}
	return err
}

// unknownMember returns the name of the member that a Decoder does not know.
func unknownMember(err error) (string, bool) {
	if _, typed := errors.AsType[*json.UnmarshalTypeError](err); err == nil || typed { // Error needs its type
		return "", false
	}
	quoted, found := strings.CutPrefix(err.Error(), "json: unknown field ")
	return strings.Trim(quoted, `"`), found
}

// checkStream refuses members that have an effect on streams only, and those of streams that this
// server does not have.
func checkStream(stream bool, o *streamOptions) error {
	switch {
	case o == nil:
		return nil
	case !stream:
		return invalid("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case o.IncludeObfuscation:
		return invalid("stream_options.include_obfuscation", "stream_options.include_obfuscation is not supported: events have no padding")
	}
	return nil
}

// checkTop checks the number of the likeliest tokens to report with each token.
func checkTop(n int) error {
	if n < 0 || n > maxTop {
		return invalid("top_logprobs", fmt.Sprintf("top_logprobs must be from 0 to %d", maxTop))
	}
	return nil
}

// continuousUsage reports whether all events of a stream have the counts of tokens until then (vLLM's
// extension).
func (o *options) continuousUsage() bool {
	return o.includeUsage() && o.StreamOptions.ContinuousUsage
}

// includeUsage reports whether the last event of a stream has the counts of tokens.
func (o *options) includeUsage() bool { return o.StreamOptions != nil && o.StreamOptions.IncludeUsage }

// checkBias refuses biases of tokens that the model does not have.
func checkBias(g *engine.Generation, vocabulary int) error {
	for id := range g.Sampling.Bias {
		if id < 0 || vocabulary > 0 && int(id) >= vocabulary {
			return invalid("logit_bias", fmt.Sprintf("Invalid key in 'logit_bias': %d. The model has %d tokens.", id, vocabulary))
		}
	}
	return nil
}
