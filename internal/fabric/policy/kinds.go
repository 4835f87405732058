package policy

import (
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
)

// per adds to m the members that define which calls share a bucket, a count or a breaker: per, key
// and keys. by is the default.
func (p *parser) per(m members, to *per, by perKind) members {
	to.by, to.most = by, defaultKeys
	said := false
	m["per"] = func(n *yaml.Node) error {
		by, ok := perNames()[n.Value]
		if !ok || n.Kind != yaml.ScalarNode {
			return p.src.errorf(n, "%q is none of %s; for anything else write key: and an expression", n.Value, join(perNames()))
		}
		if said {
			return p.src.errorf(n, "per and key exclude each other")
		}
		to.by, said = by, true
		return nil
	}
	m["key"] = func(n *yaml.Node) (err error) {
		if said {
			return p.src.errorf(n, "per and key exclude each other")
		}
		to.by, said = perExpression, true
		to.expr, err = p.compile(n, expectedType{stringType(), "key"})
		return err
	}
	m["keys"] = p.integer(&to.most, keyCacheShards, 1_000_000)
	return m
}

func (p *per) describe() string {
	for name, kind := range perNames() {
		if kind == p.by && kind != perAll {
			return " per " + name
		}
	}
	if p.expr != nil {
		return " per key"
	}
	return ""
}

func (p *parser) rate(n *yaml.Node) (rules, error) {
	r := &rateRules{}
	var rate *yaml.Node
	burst := 0
	m := p.per(members{
		"burst": p.integer(&burst, 1, 1e9),
		"scope": func(n *yaml.Node) error { return p.keyword(n, map[string]bool{"node": false, "pool": true}, &r.pool) },
	}, &r.per, perAll)
	m["rate"] = func(n *yaml.Node) error {
		rate = n
		return p.perHour(&r.unitsPerHour)(n)
	}
	if err := p.mapping(n, "rate", m); err != nil {
		return nil, err
	}
	if err := p.require(n, rate != nil, "rate", "rate: {rate: 100/s, burst: 20}"); err != nil {
		return nil, err
	}
	if burst == 0 {
		burst = int(math.Ceil(float64(r.unitsPerHour) / 3600 / unitsPerToken))
	}
	r.burst = uint64(burst) * unitsPerToken
	r.err = p.refusal(codes.ResourceExhausted, "more than %s%s (burst %d)", rate.Value, r.per.describe(), burst)
	return r, nil
}

func (p *parser) concurrency(n *yaml.Node) (rules, error) {
	r := &concurrencyRules{}
	limit := 0
	var ignored bool
	m := p.per(members{
		"limit": p.integer(&limit, 1, 1e9),
		"queue": func(n *yaml.Node) error { return p.keyword(n, map[string]bool{"none": true}, &ignored) },
	}, &r.per, perAll)
	if err := p.mapping(n, "concurrency", m); err != nil {
		return nil, err
	}
	if err := p.require(n, limit > 0, "limit", "concurrency: {limit: 100, per: tenant}"); err != nil {
		return nil, err
	}
	r.limit = int64(limit)
	r.err = p.refusal(codes.ResourceExhausted, "more than %d calls at a time%s", limit, r.per.describe())
	return r, nil
}

func (p *parser) timeout(n *yaml.Node) (rules, error) {
	r := &timeoutRules{}
	if err := p.duration(&r.timeout)(n); err != nil {
		return nil, err
	}
	if r.timeout == 0 {
		return nil, p.src.errorf(n, "a timeout of nothing ends every call: use access to refuse calls")
	}
	return r, nil
}

// budget returns the parser of the member that bounds extra attempts.
func (p *parser) budget(to *budgetRules) func(*yaml.Node) error {
	*to = budgetRules{ratio: whole / 5, reserve: 10 * whole}
	return func(n *yaml.Node) error {
		ratio, reserve := 0.2, 10
		m := members{"ratio": p.fraction(&ratio), "reserve": p.integer(&reserve, 1, 1e6)}
		if err := p.mapping(n, "budget", m); err != nil {
			return err
		}
		*to = budgetRules{ratio: int64(ratio * whole), reserve: int64(reserve) * whole}
		return nil
	}
}

func (p *parser) retry(n *yaml.Node) (rules, error) {
	r := &retryRules{attempts: 3, codes: []codes.Code{codes.Unavailable}}
	r.base, r.most, r.factor, r.jitter = 25*time.Millisecond, time.Second, 2, 1
	m := members{
		"attempts": p.integer(&r.attempts, 2, 10), "codes": p.codes(&r.codes), "budget": p.budget(&r.budget),
		"backoff": func(n *yaml.Node) error { return r.parseBackoff(p, n) },
	}
	if err := p.mapping(n, "retry", m); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *retryRules) parseBackoff(p *parser, n *yaml.Node) error {
	var limit *yaml.Node
	err := p.mapping(n, "backoff", members{
		"base": p.duration(&r.base),
		"max": func(n *yaml.Node) error {
			limit = n
			return p.duration(&r.most)(n)
		},
		"factor": p.number(&r.factor, 1, 10), "jitter": p.fraction(&r.jitter),
	})
	switch {
	case err != nil || r.base <= r.most:
		return err
	case limit == nil:
		return p.src.errorf(n, "base is %v, above max, which is %v by default: set max, too", r.base, r.most)
	}
	return p.src.errorf(limit, "max is %v, below base, which is %v: no back-off may exceed max", r.most, r.base)
}

func (p *parser) hedge(n *yaml.Node) (rules, error) {
	r := &hedgeRules{attempts: 2, codes: []codes.Code{codes.Unavailable}}
	m := members{
		"after": p.duration(&r.after), "attempts": p.integer(&r.attempts, 2, 10),
		"codes": p.codes(&r.codes), "budget": p.budget(&r.budget),
	}
	if err := p.mapping(n, "hedge", m); err != nil {
		return nil, err
	}
	if err := p.require(n, r.after > 0, "after", "hedge: {after: 20ms}"); err != nil {
		return nil, err
	}
	return r, nil
}

func (p *parser) breaker(n *yaml.Node) (rules, error) {
	r := &breakerRules{ratio: 0.5, least: 20, window: 10 * time.Second, open: 5 * time.Second, probes: 1}
	r.codes = []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown}
	m := p.per(members{
		"ratio": p.fraction(&r.ratio), "least": p.integer(&r.least, 1, 1e6), "window": p.duration(&r.window),
		"open": p.duration(&r.open), "probes": p.integer(&r.probes, 1, 1000), "codes": p.codes(&r.codes),
	}, &r.per, perMethod)
	if err := p.mapping(n, "breaker", m); err != nil {
		return nil, err
	}
	if r.window < 10*time.Millisecond || r.ratio == 0 {
		return nil, p.src.errorf(n, "a breaker has a window of 10ms at least and a ratio above 0")
	}
	r.refusal = p.refusal(codes.Unavailable, "the breaker%s is open: too many calls failed", r.per.describe())
	return r, nil
}

func (p *parser) mirror(n *yaml.Node) (rules, error) {
	r := &mirrorRules{fraction: 1}
	m := members{"fraction": p.fraction(&r.fraction), "to": func(n *yaml.Node) error { return p.text(n, &r.to) }}
	if err := p.mapping(n, "mirror", m); err != nil {
		return nil, err
	}
	if err := p.require(n, r.to != "", "to", "mirror: {to: shop.OrdersNext, fraction: 5%}"); err != nil {
		return nil, err
	}
	if strings.ContainsAny(r.to, "/* ") {
		return nil, p.src.errorf(n, "%q is no service's name", r.to)
	}
	if problem := p.inputs.mirrorProblem(p.applies, r.to); problem != "" {
		return nil, p.src.errorf(n, "%s", problem)
	}
	return r, nil
}

func (p *parser) fault(n *yaml.Node) (rules, error) {
	r := &faultRules{fraction: 1}
	code, message := codes.OK, "a fault was injected"
	m := members{
		"fraction": p.fraction(&r.fraction), "delay": p.duration(&r.delay), "code": p.code(&code),
		"message": func(n *yaml.Node) error { return p.text(n, &message) },
	}
	if err := p.mapping(n, "fault", m); err != nil {
		return nil, err
	}
	if err := p.require(n, r.delay > 0 || code != codes.OK, "delay or code", "fault: {fraction: 1%, code: UNAVAILABLE}"); err != nil {
		return nil, err
	}
	if code != codes.OK {
		r.err = p.refusal(code, "%s", message)
	}
	return r, nil
}

func (p *parser) link(n *yaml.Node) (rules, error) {
	r := &linkRules{}
	m := members{"latency": p.duration(&r.latency), "jitter": p.duration(&r.jitter), "bandwidth": p.bandwidth(&r.bandwidth)}
	if err := p.mapping(n, "link", m); err != nil {
		return nil, err
	}
	there := r.latency > 0 || r.jitter > 0 || r.bandwidth > 0
	return r, p.require(n, there, "latency, jitter or bandwidth", "link: {latency: 20ms, jitter: 5ms, bandwidth: 10Mbit}")
}
