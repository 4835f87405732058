package policy

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/outboard-run/outboard/fabric/call"
)

// per defines which calls share a bucket, a count or a breaker.
type per struct {
	by   perKind
	expr *expression
	most int // greatest number of keys kept
}

type perKind uint8

const (
	perAll perKind = iota
	perTenant
	perPeer
	perService
	perMethod
	perExpression
)

const defaultKeys = 10_000

func perNames() map[string]perKind {
	return map[string]perKind{"all": perAll, "tenant": perTenant, "peer": perPeer, "service": perService, "method": perMethod}
}

// maxKey bounds a key in bytes: callers choose them, and thousands are kept.
const maxKey = 256

// key returns the key of a call. A digest replaces the end of a long one.
func (p *per) key(x *Exchange) (string, error) {
	key, err := p.by.of(x.Head), error(nil)
	if p.by == perExpression {
		key, err = p.expr.string(x)
	}
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(key))
		key = key[:maxKey-2*len(sum)] + hex.EncodeToString(sum[:])
	}
	return key, err
}

func (k perKind) of(h *call.Head) string {
	switch k {
	case perTenant:
		return h.Tenant
	case perPeer:
		return h.Peer
	case perService:
		return h.Service()
	case perMethod:
		return h.Method
	default:
		return ""
	}
}
