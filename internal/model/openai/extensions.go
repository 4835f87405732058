package openai

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// extensions are members of vLLM's, SGLang's and llama-server's requests that this server does not have.
// Clients of these servers send them with the values that they have by default, which describe what
// this server does anyway: those are accepted.
type extensions struct {
	// The value false, or none.
	IncludeStop       json.RawMessage `json:"include_stop_str_in_output"`
	BeamSearch        json.RawMessage `json:"use_beam_search"`
	EarlyStopping     json.RawMessage `json:"early_stopping"`
	ContinueFinal     json.RawMessage `json:"continue_final_message"`
	ReturnTokens      json.RawMessage `json:"return_tokens"`
	ReturnTokenIDs    json.RawMessage `json:"return_token_ids"`
	TokensAsIDs       json.RawMessage `json:"return_tokens_as_token_ids"`
	TimingsPerToken   json.RawMessage `json:"timings_per_token"`
	ReturnProgress    json.RawMessage `json:"return_progress"`
	PostSamplingProbs json.RawMessage `json:"post_sampling_probs"`

	// The value true.
	SkipSpecial   json.RawMessage `json:"skip_special_tokens"`
	SpacesBetween json.RawMessage `json:"spaces_between_special_tokens"`
	AddPrompt     json.RawMessage `json:"add_generation_prompt"`
	CachePrompt   json.RawMessage `json:"cache_prompt"`
	ParseCalls    json.RawMessage `json:"parse_tool_calls"`
	Include       json.RawMessage `json:"include_reasoning"`
	Separate      json.RawMessage `json:"separate_reasoning"`
	Stream        json.RawMessage `json:"stream_reasoning"`

	// The value 0.
	MinTokens     json.RawMessage `json:"min_tokens"`
	MinKeep       json.RawMessage `json:"min_keep"`
	Mirostat      json.RawMessage `json:"mirostat"`
	DRYMultiplier json.RawMessage `json:"dry_multiplier"`
	XTC           json.RawMessage `json:"xtc_probability"`
	DynamicRange  json.RawMessage `json:"dynatemp_range"`
	Probs         json.RawMessage `json:"n_probs"`

	// The value 1.
	LengthPenalty json.RawMessage `json:"length_penalty"`
	RepeatPenalty json.RawMessage `json:"repeat_penalty"`
	TypicalP      json.RawMessage `json:"typical_p"`
	TailFree      json.RawMessage `json:"tfs_z"`

	// The value -1.
	Predict  json.RawMessage `json:"n_predict"`
	Slot     json.RawMessage `json:"id_slot"`
	TopSigma json.RawMessage `json:"top_n_sigma"`
	Truncate json.RawMessage `json:"truncate_prompt_tokens"`

	// The value "auto", or "deepseek".
	ReasoningFormat json.RawMessage `json:"reasoning_format"`

	// No value, or an empty one.
	StopTokens   json.RawMessage `json:"stop_token_ids"`
	BadWords     json.RawMessage `json:"bad_words"`
	Allowed      json.RawMessage `json:"allowed_token_ids"`
	PromptProbs  json.RawMessage `json:"prompt_logprobs"`
	Documents    json.RawMessage `json:"documents"`
	Template     json.RawMessage `json:"chat_template"`
	GuidedJSON   json.RawMessage `json:"guided_json"`
	GuidedRegex  json.RawMessage `json:"guided_regex"`
	GuidedChoice json.RawMessage `json:"guided_choice"`
	GuidedGBNF   json.RawMessage `json:"guided_grammar"`
	Structured   json.RawMessage `json:"structured_outputs"`
	Regex        json.RawMessage `json:"regex"`
	EBNF         json.RawMessage `json:"ebnf"`
	Grammar      json.RawMessage `json:"grammar"`
	JSONSchema   json.RawMessage `json:"json_schema"`
	Samplers     json.RawMessage `json:"samplers"`
	LoRA         json.RawMessage `json:"lora"`
}

// checkExtensions refuses extensions with other values than those which ask for nothing.
func (e *extensions) checkExtensions() error {
	all := reflect.ValueOf(e).Elem()
	for i := range all.NumField() {
		raw := all.Field(i).Bytes()
		if len(raw) == 0 {
			continue
		}
		name := all.Type().Field(i).Tag.Get("json")
		if !asksForNothing(name, raw) {
			return invalid(name, fmt.Sprintf("%s is %.100s, which is not supported%s", name, raw, remedyFor(name)))
		}
	}
	return nil
}

// maxDefault is the most bytes of a value that asks for nothing.
const maxDefault = 64

// asksForNothing reports whether a value of an extension describes what this server does anyway.
func asksForNothing(name string, raw []byte) bool {
	var value any
	if len(raw) > maxDefault || json.Unmarshal(raw, &value) != nil {
		return false
	}
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		switch name {
		case "skip_special_tokens", "add_generation_prompt", "cache_prompt", "parse_tool_calls",
			"include_reasoning", "separate_reasoning", "stream_reasoning":
			return v
		case "spaces_between_special_tokens": // there are no special tokens in an answer
			return true
		}
		return !v
	case float64:
		switch name {
		case "length_penalty", "repeat_penalty", "typical_p", "tfs_z":
			return v == 1
		case "n_predict", "id_slot", "top_n_sigma", "truncate_prompt_tokens":
			return v == -1
		case "prompt_logprobs":
			return false
		}
		return v == 0
	case string:
		return v == "" || name == "reasoning_format" && (v == "auto" || v == "deepseek")
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0 && name != "guided_json" && name != "json_schema" // {} is a schema
	}
	return false
}

// remedyFor returns what to send instead of an extension, after a colon.
func remedyFor(name string) string {
	switch {
	case strings.HasPrefix(name, "guided_"), name == "structured_outputs", name == "regex", name == "ebnf", name == "grammar", name == "json_schema":
		return ": use response_format"
	case name == "n_predict":
		return ": use max_completion_tokens"
	case name == "repeat_penalty":
		return ": use repetition_penalty"
	case name == "stop_token_ids":
		return ": use stop"
	case name == "min_tokens", name == "bad_words", name == "allowed_token_ids":
		return ": use logit_bias"
	case name == "chat_template", name == "documents":
		return ": use chat_template_kwargs"
	}
	return ""
}
