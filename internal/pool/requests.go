package pool

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// A keeperRequest is a request of a node without a copy of the state to a node that keeps one, for
// an operation that needs the authority's key, which the requesting node cannot read.
type keeperRequest struct {
	// Admit signs a certificate for a joining node, Renew one for the requesting node.
	Admit *admitRequest `json:"admit,omitempty"`
	Renew []byte        `json:"renew,omitempty"` // a certificate request
	// TokenTTL creates a token that is valid for so long.
	TokenTTL time.Duration `json:"token_ttl,omitempty"`
}

type admitRequest struct {
	Name      outboard.NodeID `json:"name"`
	TokenHash string          `json:"token_hash"`
	CSR       []byte          `json:"csr"`
}

// A keeperAnswer is the result of a keeperRequest, or the reason of a refusal.
type keeperAnswer struct {
	Cert   []byte        `json:"cert,omitempty"`
	Peers  []string      `json:"peers,omitempty"`
	Token  string        `json:"token,omitempty"`
	Kind   outboard.Kind `json:"kind,omitempty"`
	Reason string        `json:"reason,omitempty"`
}

// requestStateNode sends a request to a node that keeps the state.
func (p *Pool) requestStateNode(ctx context.Context, r keeperRequest) (keeperAnswer, error) {
	var a keeperAnswer
	text, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	if text, err = p.state.SendRequest(ctx, text); err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, outboard.Errorf(outboard.Protocol, "ask the nodes that keep the pool's state", "%w", err)
	}
	if a.Kind != 0 {
		return a, &outboard.Error{Kind: a.Kind, Err: errors.New(a.Reason)}
	}
	return a, nil
}

// serveRequests answers the requests of other nodes while this node keeps a copy of the state.
func (a admission) serveRequests(ctx context.Context) {
	if a.p.state.Role() == "external" {
		return // Every node reads the authority itself.
	}
	tick := time.NewTicker(a.p.opts.Heartbeat / 4)
	defer tick.Stop()
	var stop func()
	for {
		switch keeps := a.p.state.KeepsCopy(); {
		case keeps && stop == nil:
			var err error
			if stop, err = a.p.state.ServeRequests(func(node string, request []byte) []byte {
				return a.answer(ctx, outboard.NodeID(node), request)
			}); err != nil {
				a.p.log.Debug("serve the requests of nodes", "error", err)
			}
		case !keeps && stop != nil:
			stop()
			stop = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// answer answers one request of a node.
func (a admission) answer(ctx context.Context, node outboard.NodeID, request []byte) []byte {
	ctx, cancel := context.WithTimeout(ctx, authority.JoinTimeout)
	defer cancel()
	var r keeperRequest
	out, err := keeperAnswer{}, json.Unmarshal(request, &r)
	switch {
	case err != nil:
	case r.Admit != nil:
		out, err = a.answerAdmit(ctx, node, *r.Admit)
		if err == nil {
			a.p.log.Info("node admitted", "joined", r.Admit.Name, "by", node)
		}
	case r.TokenTTL != 0:
		if err = a.p.tokens.add(node, time.Now(), r.TokenTTL); err == nil {
			out.Token, err = a.makeToken(ctx, node, r.TokenTTL)
		}
	case r.Renew != nil:
		out, err = a.answerRenew(ctx, node, r.Renew)
	default:
		err = outboard.Errorf(outboard.Protocol, "answer a node", "it asks for nothing that this node knows: are their versions the same?")
	}
	if err != nil {
		a.p.log.Warn("refused a request of a node", "asks", node, "error", err)
		if out = (keeperAnswer{Kind: outboard.KindOf(err), Reason: authority.ReasonOf(err)}); out.Kind == outboard.Other {
			out.Kind = outboard.Unreachable // 0 stands for no error.
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		a.p.log.Warn("answer a node", "error", err)
	}
	return text
}

// maxTokens bounds the tokens of a node without a copy of the state that have not expired: each is an
// entry of the table.
const maxTokens = 1000

// tokenCounts are the times at which the tokens expire that this node has made for other nodes.
type tokenCounts struct {
	mu  sync.Mutex
	all map[outboard.NodeID][]time.Time
}

// add counts a token, and refuses one too many.
func (c *tokenCounts) add(node outboard.NodeID, now time.Time, ttl time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[outboard.NodeID][]time.Time)
	}
	c.all[node] = slices.DeleteFunc(c.all[node], now.After)
	if len(c.all[node]) >= maxTokens {
		return outboard.Errorf(outboard.Exhausted, "make a token",
			"%d tokens of this node have not expired: use them, or make tokens on a node that keeps the pool's state", maxTokens)
	}
	c.all[node] = append(c.all[node], now.Add(ttl))
	return nil
}

func (a admission) answerAdmit(ctx context.Context, node outboard.NodeID, r admitRequest) (keeperAnswer, error) {
	csr, err := authority.ParseRequest(r.CSR)
	if err != nil {
		return keeperAnswer{}, err
	}
	cert, peers, err := a.admit(ctx, node, r.Name, r.TokenHash, csr)
	if err != nil {
		return keeperAnswer{}, err
	}
	return keeperAnswer{Cert: cert.Raw, Peers: peers}, nil
}
