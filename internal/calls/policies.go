package calls

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// policies are the pool's policies and balancing rules in force here.
type policies struct {
	registry *services.Registry
	log      *slog.Logger
	table    policy.Table
	modules  policy.Modules
	applied  policyVersion // used by apply alone
	partial  bool          // some of the policies in force could not be read; used by apply alone

	mu      sync.Mutex
	balance balance.Rules
}

// A policyVersion is the number of the policies, and of the service descriptions with which they
// were read: an expression may name fields that become known later.
type policyVersion struct {
	number       int
	descriptions uint64
}

func newPolicies(registry *services.Registry, log *slog.Logger) *policies {
	return &policies{registry: registry, log: log}
}

// apply puts the pool's policies in force if they, or the descriptions of their services, have
// changed. One goroutine at a time may call it.
func (p *policies) apply() {
	current := p.registry.Policies().Current()
	if current == nil {
		return
	}
	before, now := p.applied, policyVersion{current.Number, p.registry.Descriptions()}
	if now == before {
		return
	}
	p.applied = now
	set, rules, err := p.read(current.Name, []byte(current.Text), p.partial || p.table.Set() == nil)
	if err != nil {
		// The node on which they were applied could read them: it is newer, or has other
		// descriptors.
		log := p.log.With("version", current.Number, "error", err)
		if set == nil {
			log.Error("this node can't read the pool's policies: the earlier ones stay in force")
			return
		}
		log.Error("this node can't read some of the pool's policies: calls that these might reject are rejected, the others are in force")
	}
	p.partial = err != nil
	p.mu.Lock()
	p.balance = rules
	p.mu.Unlock()
	p.table.Apply(set, time.Now())
	if now.number != before.number {
		p.log.Info("policies are in force", "version", current.Number, "by", string(current.By))
	}
}

func (p *policies) parse(name string, text []byte) (*policy.Set, error) {
	set, _, err := p.read(name, text, false)
	return set, err
}

// read parses a file of policies and balancing rules. partial is policy.Options.Partial.
func (p *policies) read(name string, text []byte, partial bool) (*policy.Set, balance.Rules, error) {
	text, rules, rulesErr := balance.SplitRules(name, text)
	if rulesErr != nil && !partial {
		return nil, nil, rulesErr
	}
	set, err := policy.ParseOptions(name, text, policy.Options{Descriptors: descriptors{p.registry}, Modules: &p.modules, Partial: partial})
	return set, rules, errors.Join(rulesErr, err)
}

// balanceOf returns the balancing configuration of a service on a node.
func (p *policies) balanceOf(service string, self outboard.NodeID) balance.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.balance.For(service, string(self))
}

// Policies lists the policies in force on this node.
func (p *Plane) Policies() []client.Policy {
	list := []client.Policy{}
	set := p.policies.table.Set()
	if set == nil {
		return list
	}
	for _, info := range set.Policies() {
		list = append(list, client.Policy{
			Name: info.Name, Kind: info.Kind, Applies: scopeText(info.Services, info.Methods, info.Tenants), When: info.When,
			Calls: info.Calls, Acted: info.Acted, Refused: info.Refused, Failed: info.Failed,
		})
	}
	return list
}

// scopeText describes which calls a policy applies to.
func scopeText(services, methods, tenants []string) string {
	var parts []string
	for _, part := range []struct {
		noun  string
		names []string
	}{{"services", services}, {"methods", methods}, {"tenants", tenants}} {
		if len(part.names) > 0 {
			parts = append(parts, part.noun+" "+strings.Join(part.names, ","))
		}
	}
	if len(parts) == 0 {
		return "all calls"
	}
	return strings.Join(parts, "; ")
}
