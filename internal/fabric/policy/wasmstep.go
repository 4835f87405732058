package policy

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/fabric/policy/wasm"
)

// wasmRules let a user's module decide about calls.
type wasmRules struct {
	module  *wasm.Module
	config  string
	payload bool // the module may read the request
}

type wasmStep struct {
	*wasmRules
	policy *policy
}

func (r *wasmRules) bind(p *policy, _ step, _ time.Time) step { return &wasmStep{r, p} }

func (s *wasmStep) apply(x *Exchange) error {
	c := wasmCall{step: s, x: x}
	v, err := s.module.Request(&c)
	switch {
	case err != nil:
		return &evaluationError{err}
	case v.Denied:
		return status.Errorf(v.Code, "policy %s: %s", s.policy.name, v.Message)
	}
	c.apply()
	if s.module.Responds() {
		x.acquisitions = append(x.acquisitions, acquisition{owner: s})
	}
	return nil
}

func (s *wasmStep) release(x *Exchange, _ acquisition, o Outcome) {
	if o.refused {
		return
	}
	if err := s.module.Response(&wasmCall{step: s, x: x}, o.Code()); err != nil {
		s.policy.counts.failed.Add(1)
	}
}

// wasmCall is a call as a module sees it. Its changes take effect when the module accepts the call.
type wasmCall struct {
	step    *wasmStep
	x       *Exchange
	changes [][2]string
}

// Head implements wasm.Call.
func (c *wasmCall) Head(name string) (string, bool) {
	h := c.x.Head
	switch name {
	case "tenant":
		return h.Tenant, true
	case "peer":
		return h.Peer, true
	case "caller_node":
		return c.x.Node, true
	case "caller_kind":
		kind, _ := identity(h.Tenant)
		return kind, true
	case "caller_name":
		_, name := identity(h.Tenant)
		return name, true
	case "service":
		return h.Service(), true
	case "method":
		return h.Name(), true
	case "attempt":
		return strconv.Itoa(h.Attempt), true
	case "now":
		return strconv.FormatInt(c.x.Now.UnixMilli(), 10), true
	case "deadline":
		return strconv.FormatInt(h.Deadline.UnixMilli(), 10), !h.Deadline.IsZero()
	case "policy":
		return c.step.policy.name, true
	case "config":
		return c.step.config, true
	}
	return "", false
}

// Metadata implements wasm.Call.
func (c *wasmCall) Metadata(key string) (string, bool) {
	for _, change := range slices.Backward(c.changes) {
		if change[0] == key {
			return change[1], true
		}
	}
	values := c.x.Head.Metadata[key]
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

const mostChanges = 64

// SetMetadata implements wasm.Call.
func (c *wasmCall) SetMetadata(key, value string) bool {
	if wrongKey(key) != "" || len(c.changes) >= mostChanges || !strings.HasSuffix(key, "-bin") && !printable(value) {
		return false
	}
	c.changes = append(c.changes, [2]string{key, value})
	return true
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

var errPayload = errors.New("the policy does not say payload: true")

// Payload implements wasm.Call.
func (c *wasmCall) Payload() ([]byte, error) {
	if !c.step.payload {
		return nil, errPayload
	}
	if err := c.x.encode(); err != nil {
		return nil, err
	}
	if c.x.Plan.Payload != nil {
		return c.x.Plan.Payload, nil
	}
	return c.x.bytes()
}

func (c *wasmCall) apply() {
	if len(c.changes) == 0 {
		return
	}
	md := c.x.ownMetadata().Metadata
	for _, change := range c.changes {
		md[change[0]] = []string{change[1]}
	}
	c.step.policy.recordAction(c.x)
}

func (p *parser) wasm(n *yaml.Node) (rules, error) {
	r := &wasmRules{}
	var code []byte
	var o wasm.Options
	megabytes, steps := 16, 10_000_000
	yes := map[string]bool{"true": true, "false": false}
	err := p.mapping(n, "wasm", members{
		"module": func(n *yaml.Node) error { return p.namedModule(n, &code) },
		"code":   func(n *yaml.Node) error { return p.inlineModule(n, &code) },
		"config": func(n *yaml.Node) error { return p.text(n, &r.config) },
		"memory": p.megabytes(&megabytes), "steps": p.integer(&steps, 1000, 1_000_000_000), "timeout": p.duration(&o.Timeout),
		"payload":   func(n *yaml.Node) error { return p.keyword(n, yes, &r.payload) },
		"instances": p.integer(&o.Instances, 1, 256),
	})
	if err != nil {
		return nil, err
	}
	if err := p.require(n, code != nil, "module", "wasm: {module: check.wasm}"); err != nil {
		return nil, err
	}
	p.request = p.request || r.payload
	o.Memory, o.Steps = megabytes*16, int64(steps)
	if r.module, err = p.options.Modules.compile(code, o); err != nil {
		return nil, p.src.errorf(n, "module: %v", err)
	}
	return r, nil
}

func (p *parser) namedModule(n *yaml.Node, code *[]byte) error {
	if *code != nil {
		return p.src.errorf(n, "module and code exclude each other")
	}
	if p.options.Module == nil {
		return p.src.errorf(n, "module %q: no modules are known here: put it into the file as code, in base64", n.Value)
	}
	var err error
	if *code, err = p.options.Module(n.Value); err != nil {
		return p.src.errorf(n, "module %q: %v", n.Value, err)
	}
	return nil
}

func (p *parser) inlineModule(n *yaml.Node, code *[]byte) error {
	if *code != nil {
		return p.src.errorf(n, "module and code exclude each other")
	}
	var err error
	if *code, err = unpack(n.Value); err != nil {
		return p.src.errorf(n, "%v", err)
	}
	return nil
}

func (p *parser) megabytes(m *int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.Atoi(strings.TrimSuffix(n.Value, "MiB"))
		if err != nil || v < 1 || v > 1024 || !strings.HasSuffix(n.Value, "MiB") {
			return p.src.errorf(n, "%q is no memory: write 16MiB; from 1MiB to 1024MiB", n.Value)
		}
		*m = v
		return nil
	}
}
