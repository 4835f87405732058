package policy

import (
	"errors"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// An expression is a CEL expression, compiled for the request types that it may read.
type expression struct {
	text    string
	request bool // it reads the request
	plain   cel.Program
	typed   map[int]cel.Program // by the number of the request type; if request is set
	literal ref.Val             // value of an expression that is a literal; nil for others
}

func (e *expression) program(x *Exchange) cel.Program {
	if e.request {
		if p := e.typed[x.chain.index]; p != nil {
			return p
		}
	}
	return e.plain
}

// eval evaluates the expression for a call.
func (e *expression) eval(x *Exchange) (ref.Val, error) {
	if e.literal != nil {
		return e.literal, nil
	}
	p := e.program(x)
	if p == nil {
		return nil, status.Errorf(codes.Internal, "the request's type is not known: no descriptor of %s", x.Head.Method)
	}
	x.vars.x, x.vars.err = x, nil
	v, _, err := p.Eval(&x.vars)
	if x.vars.err != nil {
		return nil, x.vars.err
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "%s: %v", e.text, err)
	}
	return v, nil
}

var errKind = errors.New("value of another kind than was checked")

func (e *expression) bool(x *Exchange) (bool, error) {
	v, err := e.eval(x)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, errKind
	}
	return bool(b), nil
}

func (e *expression) string(x *Exchange) (string, error) {
	v, err := e.eval(x)
	if err != nil {
		return "", err
	}
	s, ok := v.(types.String)
	if !ok {
		return "", errKind
	}
	return string(s), nil
}

// variables are the inputs of expressions: the call's attributes.
type variables struct {
	x        *Exchange
	err      error // why there is no request
	request  ref.Val
	response metadata.MD
}

// noDeadline is the time from now to the value of deadline for a call without a deadline, so that
// expressions can compute with it.
const noDeadline = 100 * 365 * 24 * time.Hour

// ResolveName implements cel.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	h := v.x.Head
	switch name {
	case "request":
		return v.message()
	case "metadata":
		return fields{h.Metadata}, true
	case "response":
		return fields{v.response}, true
	case "tenant":
		return types.String(h.Tenant), true
	case "peer":
		return types.String(h.Peer), true
	case "caller_node":
		return types.String(v.x.Node), true
	case "caller_kind":
		kind, _ := identity(h.Tenant)
		return types.String(kind), true
	case "caller_name":
		_, name := identity(h.Tenant)
		return types.String(name), true
	case "service":
		return types.String(h.Service()), true
	case "method":
		return types.String(h.Name()), true
	case "attempt":
		return types.Int(h.Attempt), true
	case "now":
		return types.Timestamp{Time: v.x.Now}, true
	case "deadline":
		if h.Deadline.IsZero() {
			return types.Timestamp{Time: v.x.Now.Add(noDeadline)}, true
		}
		return types.Timestamp{Time: h.Deadline}, true
	}
	return nil, false
}

// identity splits the identity of a caller into its kind (a user of its node, the process of a
// tenant, a node) and its name. The kind of a caller that is not authenticated is "".
func identity(tenant string) (kind, name string) {
	kind, name, ok := strings.Cut(tenant, ":")
	if !ok {
		return "", tenant
	}
	if kind == "uid" {
		kind = "user"
	}
	return kind, name
}

// Parent implements cel.Activation.
func (v *variables) Parent() cel.Activation { return nil }

func (v *variables) message() (any, bool) {
	if v.request != nil {
		return v.request, true
	}
	m, err := v.x.message()
	if err != nil {
		v.err = err
		return nil, false
	}
	return m.Interface(), true
}
