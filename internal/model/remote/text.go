package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A textRequest is a call of an engine.TextModel, as JSON. Exactly one field besides Model and
// Version is set.
type textRequest struct {
	Model   string `json:"model"`
	Version int    `json:"version"`

	Describe bool                 `json:"describe,omitempty"`
	Tokenize *engine.Text         `json:"tokenize,omitempty"`
	Render   *engine.Conversation `json:"render,omitempty"`
	Stats    bool                 `json:"stats,omitempty"`
	Embed    []int32              `json:"embed,omitempty"`
	Generate *engine.Generation   `json:"generate,omitempty"`
}

type textReply struct {
	Info       *engine.Info `json:"info,omitempty"`
	Tokens     []int32      `json:"tokens,omitempty"`
	Text       string       `json:"text,omitempty"`
	Version    int          `json:"version,omitempty"` // that Info describes
	NoTemplate bool         `json:"no_template,omitempty"`
	Embedding  []float32    `json:"embedding,omitempty"`

	Stats *engine.TextStats `json:"stats,omitempty"`
}

// A generatePart is a message of a generation's stream; the last message has Usage.
type generatePart struct {
	Tokens []engine.Token `json:"tokens,omitempty"`
	Usage  *engine.Usage  `json:"usage,omitempty"`
}

// textModel is a model for text on another node.
type textModel struct {
	peers   *Peers
	node    outboard.NodeID
	name    string
	version int
	info    engine.Info
}

var _ engine.TextModel = (*textModel)(nil)

// Info implements engine.Model.
func (m *textModel) Info() engine.Info { return m.info }

// Close implements engine.Model.
func (m *textModel) Close() error { return nil }

func (m *textModel) call(ctx context.Context, r textRequest) (textReply, error) {
	var reply textReply
	r.Model, r.Version = m.name, m.version
	request, err := json.Marshal(r)
	if err != nil {
		return reply, err
	}
	var answer wrapperspb.BytesValue
	if err := m.peers.invoke(ctx, m.node, "Text", wrapperspb.Bytes(request), &answer); err != nil {
		return reply, err
	}
	return reply, json.Unmarshal(answer.GetValue(), &reply)
}

// Describe implements serve.Peers. A node of an earlier release does not return the number.
func (p *Peers) Describe(ctx context.Context, node outboard.NodeID, name string, version int) (engine.Info, int, error) {
	r, err := (&textModel{peers: p, node: node, name: name, version: version}).call(ctx, textRequest{Describe: true})
	if err != nil || r.Info == nil {
		return engine.Info{}, 0, err
	}
	if err := r.Info.Validate(); err != nil {
		return engine.Info{}, 0, outboard.Errorf(outboard.Protocol, "node "+string(node), "%w", err)
	}
	return *r.Info, r.Version, nil
}

// statsLimit bounds a request for statistics.
const statsLimit = 2 * time.Second

// Tokenize implements engine.TextModel.
func (m *textModel) Tokenize(ctx context.Context, t engine.Text) ([]int32, error) {
	r, err := m.call(ctx, textRequest{Tokenize: &t})
	return r.Tokens, err
}

// Render implements engine.TextModel.
func (m *textModel) Render(ctx context.Context, c engine.Conversation) (string, error) {
	r, err := m.call(ctx, textRequest{Render: &c})
	if err == nil && r.NoTemplate {
		err = engine.ErrNoTemplate
	}
	return r.Text, err
}

// Embed implements engine.TextModel.
func (m *textModel) Embed(ctx context.Context, tokens []int32) ([]float32, error) {
	r, err := m.call(ctx, textRequest{Embed: tokens})
	return r.Embedding, err
}

// Stats implements engine.TextModel.
func (m *textModel) Stats() engine.TextStats {
	ctx, cancel := context.WithTimeout(context.Background(), statsLimit)
	defer cancel()
	r, err := m.call(ctx, textRequest{Stats: true})
	if err != nil || r.Stats == nil || r.Stats.Validate() != nil {
		return engine.TextStats{} // an unreachable node has no statistics
	}
	return *r.Stats
}

// Generate implements engine.TextModel.
func (m *textModel) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := json.Marshal(textRequest{Model: m.name, Version: m.version, Generate: &g})
	if err != nil {
		return engine.Usage{}, err
	}
	stream, err := m.peers.conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Generate", ServerStreams: true}, "/"+serviceName(m.node)+"/Generate")
	if err == nil {
		err = errors.Join(stream.SendMsg(wrapperspb.Bytes(request)), stream.CloseSend())
	}
	if err != nil {
		return engine.Usage{}, errorOf(m.node, err)
	}
	emit = engine.NewStreamCheck(&g, m.info.Context).Emit(emit)
	for {
		var message wrapperspb.BytesValue
		var part generatePart
		if err := stream.RecvMsg(&message); err != nil {
			if ctx.Err() != nil {
				return engine.Usage{}, context.Cause(ctx)
			}
			if errors.Is(err, io.EOF) {
				err = outboard.Errorf(outboard.Unreachable, "", "the stream ended early")
			}
			return engine.Usage{}, errorOf(m.node, err)
		}
		if err := json.Unmarshal(message.GetValue(), &part); err != nil {
			return engine.Usage{}, outboard.Errorf(outboard.Protocol, "node "+string(m.node), "%w", err)
		}
		for i := range part.Tokens {
			if err := emit(part.Tokens[i]); err != nil {
				return engine.Usage{}, err
			}
		}
		if part.Usage == nil {
			continue
		}
		if err := part.Usage.Validate(); err != nil {
			return engine.Usage{}, outboard.Errorf(outboard.Protocol, "node "+string(m.node), "%w", err)
		}
		return *part.Usage, nil
	}
}

// text answers the calls of a textModel.
func (s *Server) text(ctx context.Context, q *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	var r textRequest
	if err := json.Unmarshal(q.GetValue(), &r); err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "text", "%w", err)
	}
	if r.Describe {
		return s.describe(ctx, &r)
	}
	m, release, err := s.Models.TextHere(ctx, r.Model, versionText(r.Version))
	if err != nil {
		return nil, err
	}
	defer release()
	var reply textReply
	switch {
	case r.Stats:
		stats := m.Stats()
		reply.Stats = &stats
	case r.Tokenize != nil:
		reply.Tokens, err = m.Tokenize(ctx, *r.Tokenize)
	case r.Render != nil:
		if reply.Text, err = m.Render(ctx, *r.Render); errors.Is(err, engine.ErrNoTemplate) {
			reply.NoTemplate, err = true, nil
		}
	default:
		reply.Embedding, err = m.Embed(ctx, r.Embed)
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(reply)
	return wrapperspb.Bytes(text), err
}

// describe answers Peers.Describe, also for models for tensors.
func (s *Server) describe(ctx context.Context, r *textRequest) (*wrapperspb.BytesValue, error) {
	info, number, err := s.Models.InfoHere(ctx, r.Model, versionText(r.Version))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(textReply{Info: &info, Version: number})
	return wrapperspb.Bytes(text), err
}

func versionText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// generate answers the method Generate of a textModel.
func (s *Server) generate(q *wrapperspb.BytesValue, stream grpc.ServerStream) error {
	var r textRequest
	if err := json.Unmarshal(q.GetValue(), &r); err != nil || r.Generate == nil {
		return outboard.Errorf(outboard.Invalid, "generate", "a malformed request")
	}
	m, release, err := s.Models.TextHere(stream.Context(), r.Model, versionText(r.Version))
	if err != nil {
		return err
	}
	defer release()
	send := func(p generatePart) error {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return stream.SendMsg(wrapperspb.Bytes(text))
	}
	usage, err := m.Generate(stream.Context(), *r.Generate, func(t engine.Token) error {
		return send(generatePart{Tokens: []engine.Token{t}})
	})
	if err != nil {
		return err
	}
	return send(generatePart{Usage: &usage})
}
