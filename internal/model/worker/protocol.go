package worker

import (
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// The types of messages. Requests go from the node to the worker unless noted otherwise.
const (
	typeConfine   = "confine"   // confinement: the first message
	typeLibrary   = "library"   // libraryMessage, with the file; before typeLoad, without a reply
	typeLoad      = "load"      // loadRequest, with the ring
	typeSegment   = "segment"   // segmentMessage, with its memory
	typeRelease   = "release"   // segmentMessage: the node is about to unmap it
	typeOutput    = "output"    // from the worker: outputMessage, with its memory
	typePing      = "ping"      // checks whether the process responds
	typeTokenize  = "tokenize"  // engine.Text
	typeRender    = "render"    // engine.Conversation
	typeEmbed     = "embed"     // embedRequest
	typeStats     = "stats"     // the reply is engine.TextStats
	typeGenerate  = "generate"  // generateRequest
	typeCancel    = "cancel"    // cancelMessage
	typeTokens    = "tokens"    // from the worker: tokensMessage
	typeGenerated = "generated" // from the worker: generatedMessage
	typeBypass    = "bypass"    // bypassMessage, with the files of a bypass
	typeBypassEnd = "bypassend" // bypassMessage; the reply follows the last call
)

// confinement contains the settings of the sandbox that the process enters before it loads
// anything.
type confinement struct {
	Sandbox sandbox.Config      `json:"sandbox"`
	Require []sandbox.Mechanism `json:"require,omitempty"`
	// None leaves the process unconfined: for tests, where it is a goroutine.
	None bool `json:"none,omitempty"`
}

type loadRequest struct {
	Engine  string         `json:"engine"`
	Source  engine.Source  `json:"source"`
	Options engine.Options `json:"options"`
}

// libraryMessage passes an embedded library that the node has unpacked.
type libraryMessage struct {
	Engine string `json:"engine"`
	Name   string `json:"name"`
}

type loadReply struct {
	Info    engine.Info `json:"info"`
	Version string      `json:"version"`
	// Tensors and Text report whether the model is for tensors and for text.
	Tensors bool `json:"tensors,omitempty"`
	Text    bool `json:"text,omitempty"`
}

type segmentMessage struct {
	ID uint64 `json:"id"`
}

// bypassMessage begins or ends a bypass. Limit bounds the time of its calls, whatever their caller
// asks for. Cancel cancels the call in progress.
type bypassMessage struct {
	ID     uint64        `json:"id"`
	Limit  time.Duration `json:"limit,omitempty"`
	Cancel bool          `json:"cancel,omitempty"`
}

// outputMessage passes memory for the outputs of a call; the reply refers to it by its index.
type outputMessage struct {
	Call uint64 `json:"call"`
}

type tokensReply struct {
	Tokens []int32 `json:"tokens"`
}

type textReply struct {
	Text string `json:"text"`
	// NoTemplate reports that the model has no template for conversations.
	NoTemplate bool `json:"no_template,omitempty"`
}

type embedRequest struct {
	Tokens []int32 `json:"tokens"`
}

type embedReply struct {
	// Embedding is little-endian FP32.
	Embedding []byte `json:"embedding"`
}

// A generateRequest starts a generation. Its tokens are sent in tokensMessages with its number,
// followed by a generatedMessage.
type generateRequest struct {
	Generation uint64            `json:"generation"`
	Request    engine.Generation `json:"request"`
}

// A generatedMessage ends a generation. Error is "" if it succeeded.
type generatedMessage struct {
	Generation uint64        `json:"generation"`
	Usage      engine.Usage  `json:"usage"`
	Error      string        `json:"failure,omitempty"`
	Kind       outboard.Kind `json:"failure_kind,omitempty"`
}

// cancelMessage cancels a generation.
type cancelMessage struct {
	Generation uint64 `json:"generation"`
}

// A tokensMessage contains all tokens that the worker has not sent yet, of all generations.
type tokensMessage struct {
	Batch []generatedTokens `json:"batch"`
}

type generatedTokens struct {
	Generation uint64         `json:"generation"`
	Tokens     []engine.Token `json:"tokens"`
}

// Time limits.
const (
	// confineLimit bounds the time until a process is isolated.
	confineLimit = 20 * time.Second
	// segmentLimit bounds the time in which the peer must map memory.
	segmentLimit = 20 * time.Second
	// cancelGrace is how long a call may continue after it was cancelled before its worker counts
	// as hung. One operator of a model cannot be interrupted.
	cancelGrace = 10 * time.Second
	// closeGrace is the time in which a worker must end by itself.
	closeGrace = 3 * time.Second
)

// maxMessage bounds a message between node and worker: a prompt of a million tokens in JSON.
const maxMessage = 64 << 20

// errHung is the reason for which a worker is killed that does not end a cancelled call.
var errHung = outboard.Errorf(outboard.Unreachable, "", "the model did not stop a call that had been cancelled %v before, so its process was killed", cancelGrace)
