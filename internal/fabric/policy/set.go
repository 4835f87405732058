package policy

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outboard-run/outboard/fabric/call"
)

// A Set is the compiled policies of one file, in the order of the file.
type Set struct {
	name     string
	source   []byte
	policies []*policy
	inputs   inputs
	cache    chainCache
}

// Descriptors provides the descriptors of services. A *protoregistry.Files implements it.
type Descriptors interface {
	RangeFiles(func(protoreflect.FileDescriptor) bool)
}

// Name returns the name that the set was parsed with.
func (s *Set) Name() string { return s.name }

// Source returns the text that the set was compiled from. The caller must not change it.
func (s *Set) Source() []byte { return s.source }

// For returns the chain of a call by its service, method and tenant. It is never nil. Chains
// are cached: a second lookup is one map access.
func (s *Set) For(h *call.Head) *Chain {
	key := chainKey{h.Method, h.Tenant}
	if len(key.method)+len(key.tenant) > maxChainKey {
		return s.find(h).chain()
	}
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

// withState returns a copy of the set whose policies continue with the state of earlier ones. earlier
// returns the last policy of a name and a kind, or nil.
func (s *Set) withState(earlier func(name, kind string) *policy, now time.Time) *Set {
	b := &Set{name: s.name, source: s.source, inputs: s.inputs}
	for _, p := range s.policies {
		b.policies = append(b.policies, p.withState(earlier(p.name, p.kind), now))
	}
	return b
}

// noPolicy is for sets that do not continue others.
func noPolicy(_, _ string) *policy { return nil }

func (s *Set) policy(name, kind string) *policy {
	for _, p := range s.policies {
		if p.name == name && p.kind == kind {
			return p
		}
	}
	return nil
}

// Info describes a policy for listings.
type Info struct {
	Name, Kind string
	// Line is the line of the file where the policy begins.
	Line int
	// Services, Methods and Tenants are the patterns of the calls that it applies to; none
	// means all.
	Services, Methods, Tenants []string
	// When is the text of the condition.
	When string
	// Request reports whether it may read the decoded request.
	Request bool
	// Calls is the number of calls to which the policy was applied. Acted, Refused and Failed count
	// the calls that it affected, the calls that it rejected, and the calls for which its
	// evaluation failed.
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

// A Chain is the policies that apply to one service, method and tenant, in their order.
type Chain struct {
	policies []*policy
	index    int                            // number of input in the set's inputs
	input    protoreflect.MessageDescriptor // nil if it is not known
	request  bool
	selected selection // fields of the request that its expressions read; nil: all
	response []*responder
}

// Len returns the number of policies in the chain.
func (c *Chain) Len() int { return len(c.policies) }

// Request reports whether Begin may read the request: the executor of a streaming call then
// waits for its first message before Begin.
func (c *Chain) Request() bool { return c.request }

// Begin applies the policies to a call. It returns nil and sets x.Plan, or returns the rejection as
// an error of package status and holds no resources.
func (c *Chain) Begin(x *Exchange) error {
	x.chain = c
	if x.Moved {
		return c.resume(x)
	}
	for _, p := range c.policies {
		if err := p.apply(x); err != nil {
			return c.refuse(x, err)
		}
	}
	if err := x.encode(); err != nil {
		return c.refuse(x, err)
	}
	return nil
}

// refuse releases the acquisitions of a call that was rejected.
func (c *Chain) refuse(x *Exchange, err error) error {
	c.releaseAll(x, Outcome{Err: err, Now: x.Now, refused: true})
	return err
}

// End releases what Begin acquired and reports the outcome to the policies. Further calls do
// nothing.
func (c *Chain) End(x *Exchange, o Outcome) { c.releaseAll(x, o) }

func (c *Chain) releaseAll(x *Exchange, o Outcome) {
	for _, h := range slices.Backward(x.acquisitions) {
		h.owner.release(x, h, o)
	}
	clear(x.acquisitions)
	x.acquisitions = x.acquisitions[:0]
}

// match is the set of policies that apply to a call, before its chain is built or found.
type match struct {
	key        []byte
	policies   []*policy
	input      int
	descriptor protoreflect.MessageDescriptor
}

func (f match) chain() *Chain {
	c := &Chain{policies: f.policies, index: f.input, input: f.descriptor, selected: selection{}}
	for _, p := range f.policies {
		c.request = c.request || p.request
		if s, ok := p.selections[f.input]; ok {
			c.selected = c.selected.union(s)
		}
		if r, ok := p.step.(*rewriteStep); ok && len(r.request) > 0 {
			c.selected = nil // it encodes the whole request again
		}
		if r, ok := p.step.(*rewriteStep); ok && r.responds() {
			c.response = append(c.response, &responder{policy: p, step: r})
		}
	}
	return c
}

type chainKey struct{ method, tenant string }

// chainCache caches chains. Readers use an immutable map without a lock; misses go to a second
// map under a mutex, which replaces the first one after as many misses as it has entries.
// Callers choose the keys, so both are bounded.
type chainCache struct {
	fast   atomic.Pointer[map[chainKey]*Chain]
	mu     sync.Mutex
	slow   map[chainKey]*Chain
	missed int
	chains map[string]*Chain
}

const maxChains = 4096

// maxChainKey bounds the key of a cached chain in bytes: callers choose the method.
const maxChainKey = 1 << 10

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
	c.slow[chainKey{strings.Clone(key.method), strings.Clone(key.tenant)}] = chain
	return chain
}

// intern returns the one chain of the same policies and the same request type.
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
