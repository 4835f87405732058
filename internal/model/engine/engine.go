// Package engine is the contract between the serving of models and the libraries that execute them:
// ONNX Runtime, llama.cpp, a third party's server.
//
// An engine runs in a worker process of its own, one process for each loaded version of a
// model, and may be slow, hang or crash there. Package enginetest holds every engine to this
// contract.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/outboard-run/outboard/internal/model"
)

// An Engine loads the models of one or more file formats.
type Engine interface {
	// Name returns the engine's name in configuration files: "onnx", "llama".
	Name() string
	// Version returns the version of the library, as the library reports it.
	Version() string
	// Load loads the model and prepares it for calls. An error names the operator, field or tensor
	// that is wrong with the file. Load may run for minutes; ctx ends it.
	Load(ctx context.Context, m Source, o Options) (Model, error)
}

// A Source is the files of one model: the main file and the folder of the files that it refers to.
type Source struct {
	// Path is the main file.
	Path string
	// Folder holds files that the main file refers to (external weights), "" for none.
	Folder string
}

// Options limit the resources of a loaded model.
type Options struct {
	// Threads is the number of processors that one call may use; 0 lets the engine decide.
	Threads int
	// Memory is the most bytes that the model may hold, 0 for no limit.
	Memory int64
	// Device is the accelerator of the lease, "" for the processor.
	Device string
	// Library is the path of the user's own build of the engine's library, "" for the embedded
	// library.
	Library string
	// Server is the name of the server that executes the model, for the engine "process".
	Server string
	// Context is the most tokens of a sequence, for text; 0 takes the model's own.
	Context int
	// Sequences is the most sequences that are decoded at once, for text; 0 lets the engine decide.
	Sequences int
}

// A Model is a loaded model: a TensorModel, a TextModel, or both. Its methods may be called
// concurrently.
type Model interface {
	// Info describes the model.
	Info() Info
	// Close unloads the model. Calls in progress end with an error.
	Close() error
}

// Info describes a loaded model.
type Info struct {
	// Platform is the platform string of the Open Inference Protocol: "onnx_onnxv1", "gguf".
	Platform string
	Inputs   []model.Signature
	Outputs  []model.Signature
	// BatchDimension reports whether the first dimension of all inputs and outputs counts
	// independent requests, which may be combined into a batch.
	BatchDimension bool
	// Memory is the size of the model in memory, in bytes, as far as the engine knows.
	Memory int64
	// Context, Vocabulary and Embedding are for text: the most tokens of a sequence, the number
	// of tokens, the size of an embedding.
	Context, Vocabulary, Embedding int
	// Sequences is the number of generations that are decoded at once, 0 if it is not known.
	Sequences int
	// MaxBatch is the most rows of a batch, 0 for no limit.
	MaxBatch int
	// Calls is the number of calls that should be in progress at once where the model's
	// configuration does not say it; 0 means 1.
	Calls int
	// Stateful reports whether the model is a SequenceModel that may hold state.
	Stateful bool
	// ChatTemplate is the model's template for conversations (Jinja), "" if it has none.
	ChatTemplate string
}

// A TensorModel computes outputs from inputs.
type TensorModel interface {
	Model
	// Infer computes the named outputs, or all of them if none is named. Inputs are complete
	// and of the model's types; their data is only read, and only until Infer returns. When
	// ctx ends, Infer ends the computation and returns ctx's error.
	Infer(ctx context.Context, inputs []model.Tensor, outputs []string) ([]model.Tensor, error)
}

// A SequenceModel is a TensorModel that may hold state between the requests of a sequence.
type SequenceModel interface {
	TensorModel
	// InferSequence is Infer for a request of a sequence. The requests of a sequence are executed one
	// after the other.
	InferSequence(ctx context.Context, q model.Sequence, inputs []model.Tensor, outputs []string) ([]model.Tensor, error)
}

// An Allocate returns memory of size bytes for an output. Its error ends the call.
type Allocate func(size int) ([]byte, error)

// An OutputAllocator is a TensorModel that can write outputs to the caller's memory, which
// avoids a copy.
type OutputAllocator interface {
	TensorModel
	// InferInto is Infer with outputs in memory that allocate returns.
	InferInto(ctx context.Context, inputs []model.Tensor, outputs []string, allocate Allocate) ([]model.Tensor, error)
}

// A TextModel continues texts. Concurrent calls of Generate are decoded in common batches.
type TextModel interface {
	Model
	// Tokenize returns the tokens of a text.
	Tokenize(ctx context.Context, t Text) ([]int32, error)
	// Render returns the prompt of a conversation by the model's own template, which is as hostile
	// as the rest of its file and therefore runs in the engine's process. An error that wraps
	// ErrNoTemplate means that the model has none.
	Render(ctx context.Context, c Conversation) (string, error)
	// Generate continues the prompt and calls emit for each token, in order, one call at a time; an
	// error of emit ends the generation and is returned. An engine may call emit from the goroutine
	// that computes, so one that blocks may delay the other generations. When ctx ends, the generation
	// ends within one micro-batch, and Generate returns ctx's error.
	Generate(ctx context.Context, r Generation, emit func(Token) error) (Usage, error)
	// Stats describes the model's present load, for reports of load and metrics.
	Stats() TextStats
	// Embed returns one embedding of Info.Embedding elements for the tokens.
	Embed(ctx context.Context, tokens []int32) ([]float32, error)
}

// A SteppedModel is a TextModel that computes the next tokens of several generations in one step.
type SteppedModel interface {
	TextModel
	// AfterSteps makes the model call f after it has emitted the tokens of a step, from the goroutine
	// that computes. It must be called before Generate.
	AfterSteps(f func())
}

// TextStats describes the load of a text model. Attention state is counted in cells, of one
// token each.
type TextStats struct {
	Running, Waiting int // generations
	// StateUsage is the part of the cells that is in use, by generations and by what is cached: 1
	// means all. ParkedBytes is the size of the cached state outside the cells.
	StateUsage  float64
	ParkedBytes int64
	// The other counters are sums over all generations that have ended, and over micro-batches.
	PromptTokens, CachedTokens, GeneratedTokens, MicroBatches int64

	// Pending counts the tokens of prompts that are not computed yet. PerToken is the time to
	// compute one of them, and Lifetime the time that a generation runs: moving averages, 0 before
	// the first sample.
	Pending            int
	PerToken, Lifetime time.Duration
	// Prefixes identify the prefixes whose attention state is kept, the last used first; at most
	// MaxPrefixes.
	Prefixes Prefixes `json:",omitempty"`
	// Room is how many more tokens of state are kept before state is lost, and OldestUse when the state
	// that would be lost first was used last; it is zero if no state is kept.
	Room      int
	OldestUse time.Time
}

// MaxPrefixes bounds the prefixes that a model reports.
const MaxPrefixes = 512

// ErrNoTemplate is returned for a conversation with a model that has no template.
var ErrNoTemplate = errors.New("the model has no chat template")

// A Text is a text to be tokenized.
type Text struct {
	Content string `json:"text"`
	// Suffix is the text after a gap that follows Content, "" for none: the tokens are a prompt for the
	// text in the gap. A model without such prompts refuses it.
	Suffix string `json:"suffix,omitempty"`
	// Special parses the names of special tokens in Content.
	Special bool `json:"special,omitempty"`
	// Prompt reports that a generation from Content follows: its tokens are refused, as the
	// generation would be, while too many wait.
	Prompt bool `json:"prompt,omitempty"`
	// Bounded reports that all tokens have to fit into the model's context: a text that cannot is
	// refused before it is split into tokens, if its length says so.
	Bounded bool `json:"bounded,omitempty"`
}

// A Conversation is the input of a chat template. Messages and Tools are JSON, arrays of objects as
// in OpenAI's interface: their fields are the template's variables.
type Conversation struct {
	Messages, Tools json.RawMessage
	// Prompt requests the beginning of the assistant's answer (add_generation_prompt).
	Prompt bool
	// Variables are further variables of the template (chat_template_kwargs), a JSON object.
	Variables json.RawMessage
}

// A Generation is a request to continue a prompt.
type Generation struct {
	Prompt []int32
	// Continued is the number of the last tokens of Prompt that another node generated before: stop
	// texts, the grammar and incomplete UTF-8 sequences continue from them, and text that they have
	// already completed is not emitted again.
	Continued int
	// MaxTokens is the most tokens to generate, 0 for as many as the context has room for.
	MaxTokens int
	Sampling  Sampling
	// Stop are texts that end the generation; neither they nor the text that follows them is
	// emitted.
	Stop []string
	// IgnoreEnd continues after a token that ends the text, which adds nothing to it. It is refused
	// beside a grammar.
	IgnoreEnd bool
	// Grammar constrains the text (GBNF), "" for none.
	Grammar string
	// LogProbs is the number of the most likely tokens that are reported with each token, -1 for
	// none.
	LogProbs int
	// Priority orders generations that wait for a slot in the batch: higher first.
	Priority int
	// CacheScope names the client whose earlier prompts this prompt may share attention state with.
	// Sharing is visible in Usage.CachedTokens and in the time to the first token: across clients,
	// it would disclose to one client the prompts of another.
	CacheScope string
}

// Sampling configures how a token is chosen. The zero value is greedy.
type Sampling struct {
	Temperature      float32 // 0 takes the most likely token
	TopK             int     // 0 for all
	TopP             float32 // 0 or 1 for all
	MinP             float32
	RepeatPenalty    float32 // 0 or 1 for none
	FrequencyPenalty float32
	PresencePenalty  float32
	// Seed makes the choice repeatable: a token depends on Seed, its position in the sequence (the
	// prompt's tokens counted) and the logits alone, so that another node can continue in the
	// middle of a generation. Penalties count the last 64 tokens of the sequence.
	Seed uint64
	// Bias is added to the logits of tokens.
	Bias map[int32]float32
}

// A Token is one token of a generation.
type Token struct {
	ID int32
	// Text is the text that the token adds: whole UTF-8 sequences; a token that ends within a
	// sequence adds nothing, and the token that completes it adds all of it.
	Text string
	// LogProb is the logarithm of the token's probability; Top are the most likely tokens, most
	// likely first. Both are set if the generation requests them.
	LogProb float32
	Top     []Candidate
	// Last is the reason for which the generation ends after this token, "" if it continues.
	Last FinishReason
}

// A Candidate is a token that could have been chosen.
type Candidate struct {
	ID      int32
	Text    string
	LogProb float32
}

// A FinishReason is the reason for which a generation ended.
type FinishReason string

// The reasons.
const (
	FinishStop   FinishReason = "stop"   // an end token or a stop text
	FinishLength FinishReason = "length" // MaxTokens, or the context is full
)

// Usage counts the tokens of a generation and measures its stages.
type Usage struct {
	PromptTokens int
	// CachedTokens are the tokens of the prompt whose state was reused.
	CachedTokens    int
	GeneratedTokens int
	// Queued, Prefill and Decode are the times of the generation's stages.
	Queued, Prefill, Decode time.Duration
}
