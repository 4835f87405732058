package openai

import "encoding/json"

// A chunk is an event of a stream; C is the form of its choices. It is encoded for each token, so it
// is no map, whose encoding sorts the names.
type chunk[C any] struct {
	Choices     []C    `json:"choices"`
	Created     int64  `json:"created"`
	ID          string `json:"id"`
	Model       string `json:"model"`
	Object      string `json:"object"`
	ServiceTier string `json:"service_tier,omitempty"`
	Usage       any    `json:"usage,omitempty"`
}

// null is the value of a member that is there without a value.
//
//nolint:gochecknoglobals // a constant
var null = json.RawMessage("null")

// newChunk returns the chunk that all events of a stream begin with. With usage they have that
// member, which is null but in the last one.
func newChunk[C any](j *job, object, model string, usage bool) chunk[C] {
	c := chunk[C]{Created: j.created, ID: j.id, Model: model, Object: object, Choices: []C{}}
	if usage {
		c.Usage = null
	}
	return c
}

// A chatChoice is a choice of a conversation's chunk.
type chatChoice struct {
	Delta    chatDelta `json:"delta"`
	Finish   *string   `json:"finish_reason"`
	Index    int       `json:"index"`
	LogProbs any       `json:"logprobs"`
}

// A chatDelta is what a chunk adds to a message. Reasoning is the extension of DeepSeek, llama-server and
// SGLang for thoughts.
type chatDelta struct {
	Content   *string          `json:"content,omitempty"`
	Reasoning string           `json:"reasoning_content,omitempty"`
	Role      string           `json:"role,omitempty"`
	Calls     []map[string]any `json:"tool_calls,omitempty"`
}

// A completionChoice is a choice of a completion's chunk.
type completionChoice struct {
	Finish   *string `json:"finish_reason"`
	Index    int     `json:"index"`
	LogProbs any     `json:"logprobs"`
	Text     string  `json:"text"`
}
