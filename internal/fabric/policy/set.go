package policy

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outboard-run/outboard/fabric/call"
)

// A Set is the policies of one file, in their order.
type Set struct {
	name     string
	source   []byte
	policies []*policy
	inputs   inputs
	cache    chainCache
}

// Descriptors knows the services' descriptors. A *protoregistry.Files is one.
type Descriptors interface {
	RangeFiles(func(protoreflect.FileDescriptor) bool)
}

// Name is the name that the set was parsed with.
func (s *Set) Name() string { return s.name }

// Source is the text that the set was made of. It is not to be changed.
func (s *Set) Source() []byte { return s.source }

// For finds the chain for a call, by its service, method and tenant. It is never
// nil. Chains are remembered; finding one again is a look into a map.
func (s *Set) For(h *call.Head) *Chain {
	key := chainKey{h.Method, h.Tenant}
	if c := s.cache.get(key); c != nil {
		return c
	}
	return s.cache.put(key, s.find(h))
}

func (s *Set) find(h *call.Head) match {
	f := match{input: s.inputs.of(h.Method)}
	service, method := h.Service(), h.Name()
	for i, p := range s.policies {
		if p.applies.match(service, method, h.Tenant) {
			f.policies = append(f.policies, p)
			f.key = append(f.key, byte(i), byte(i>>8))
		}
	}
	f.key = append(f.key, byte(f.input), byte(f.input>>8))
	f.descriptor = s.inputs.descriptor(f.input)
	return f
}

// bind is the set with the state that another one left: its counts go on.
func (s *Set) bind(old *Set, now time.Time) *Set {
	b := &Set{name: s.name, source: s.source, inputs: s.inputs}
	for _, p := range s.policies {
		b.policies = append(b.policies, p.bind(old.policy(p.name), now))
	}
	return b
}

func (s *Set) policy(name string) *policy {
	if s == nil {
		return nil
	}
	for _, p := range s.policies {
		if p.name == name {
			return p
		}
	}
	return nil
}

// Info describes a policy to whoever lists them.
type Info struct {
	Name, Kind string
	// Line is where it begins in the file.
	Line int
	// Services, Methods and Tenants are patterns; none means all.
	Services, Methods, Tenants []string
	// When is the condition's text.
	When string
	// Request says that it may need the decoded request.
	Request bool
	// Calls came by, of which some were Refused. Acted counts those that it did
	// something to, Failed those that it could not judge.
	Calls, Acted, Refused, Failed uint64
}

// Policies describes the set's policies in their order.
func (s *Set) Policies() []Info {
	list := make([]Info, 0, len(s.policies))
	for _, p := range s.policies {
		list = append(list, p.info())
	}
	return list
}

// A Chain is the policies for one service, method and tenant, in their order.
type Chain struct {
	policies []*policy
	index    int                            // of input in the set
	input    protoreflect.MessageDescriptor // nil where it is not known
	request  bool
	response []*responder
}

// Len is the number of policies in the chain.
func (c *Chain) Len() int { return len(c.policies) }

// Request says that Begin may ask for the request: whoever executes a streaming
// call waits for its first message before Begin, where this is true.
func (c *Chain) Request() bool { return c.request }

// Begin judges a call. It returns nil and x.Plan, or the refusal as an error of
// package status, after which nothing is held.
func (c *Chain) Begin(x *Exchange) error {
	x.chain = c
	if x.Moved {
		return c.resume(x)
	}
	for _, p := range c.policies {
		if err := p.begin(x); err != nil {
			return c.refuse(x, err)
		}
	}
	if err := x.encode(); err != nil {
		return c.refuse(x, err)
	}
	return nil
}

// refuse gives back what was taken for a call that is not to be.
func (c *Chain) refuse(x *Exchange, err error) error {
	c.release(x, Outcome{Err: err, Now: x.Now, refused: true})
	return err
}

// End gives back what Begin took and tells the policies how the call ended. More
// calls of it do nothing.
func (c *Chain) End(x *Exchange, o Outcome) { c.release(x, o) }

func (c *Chain) release(x *Exchange, o Outcome) {
	for _, h := range slices.Backward(x.held) {
		h.owner.end(x, h, o)
	}
	clear(x.held)
	x.held = x.held[:0]
}

// match is a chain to be made, or to be taken from those that are there.
type match struct {
	key        []byte
	policies   []*policy
	input      int
	descriptor protoreflect.MessageDescriptor
}

func (f match) chain() *Chain {
	c := &Chain{policies: f.policies, index: f.input, input: f.descriptor}
	for _, p := range f.policies {
		c.request = c.request || p.request
		if r, ok := p.step.(*rewriteStep); ok && r.responds() {
			c.response = append(c.response, &responder{policy: p, step: r})
		}
	}
	return c
}

type chainKey struct{ method, tenant string }

// chainCache remembers chains. Readers look into a map that nobody changes; what
// they miss lies in another one, which takes the first one's place when it has been
// asked as often as it is long. Callers choose the keys, so it is bounded.
type chainCache struct {
	fast   atomic.Pointer[map[chainKey]*Chain]
	mu     sync.Mutex
	slow   map[chainKey]*Chain
	missed int
	chains map[string]*Chain
}

const maxChains = 4096

func (c *chainCache) get(key chainKey) *Chain {
	if fast := c.fast.Load(); fast != nil {
		if chain := (*fast)[key]; chain != nil {
			return chain
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	chain := c.slow[key]
	if chain != nil {
		c.countMiss()
	}
	return chain
}

func (c *chainCache) countMiss() {
	if c.missed++; c.missed < len(c.slow) {
		return
	}
	fast := make(map[chainKey]*Chain, len(c.slow))
	maps.Copy(fast, c.slow)
	c.fast.Store(&fast)
	c.missed = 0
}

func (c *chainCache) put(key chainKey, f match) *Chain {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slow == nil || len(c.slow) >= maxChains {
		c.slow = map[chainKey]*Chain{}
	}
	chain := c.intern(f)
	c.slow[key] = chain
	return chain
}

// intern finds the chain of the same policies and the same request.
func (c *chainCache) intern(f match) *Chain {
	if chain := c.chains[string(f.key)]; chain != nil {
		return chain
	}
	if c.chains == nil || len(c.chains) >= maxChains {
		c.chains = map[string]*Chain{}
	}
	chain := f.chain()
	c.chains[string(f.key)] = chain
	return chain
}
