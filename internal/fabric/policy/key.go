package policy

import "github.com/outboard-run/outboard/fabric/call"

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

// key returns the key of a call.
func (p *per) key(x *Exchange) (string, error) {
	if p.by == perExpression {
		return p.expr.string(x)
	}
	return p.by.of(x.Head), nil
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
