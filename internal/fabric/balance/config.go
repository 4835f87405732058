package balance

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Method chooses among endpoints that are equally near.
type Method string

// The methods.
const (
	// RoundRobin takes turns, in proportion to the operator's weights.
	RoundRobin Method = "round_robin"
	// LeastRequests samples two endpoints (Choices) and picks the endpoint with fewer outstanding
	// calls for its weight. Weights are set by the operator, or come from reports if
	// Reports.Enabled.
	LeastRequests Method = "least_requests"
	// Weighted takes turns in proportion to weights from the endpoints' reports: calls per second
	// over utilisation (gRFC A58).
	Weighted Method = "weighted"
)

// A Config composes a Picker. The zero value is round robin over all endpoints.
type Config struct {
	Method Method `yaml:"method"`
	// Choices is the number of endpoints that LeastRequests compares. Default 2.
	Choices   int       `yaml:"choices"`
	Reports   Reports   `yaml:"reports"`
	Locality  Locality  `yaml:"locality"`
	Subset    Subset    `yaml:"subset"`
	SlowStart SlowStart `yaml:"slow_start"`
	Ejection  Ejection  `yaml:"ejection"`
	// Random returns 64 random bits; it is safe for concurrent use. Default: the runtime's
	// generator.
	Random func() uint64 `yaml:"-"`
}

// Reports configures how load reports become weights, as in gRFC A58.
type Reports struct {
	// Enabled makes LeastRequests use load reports; Weighted always uses them.
	Enabled bool `yaml:"enabled"`
	// Blackout is how long an endpoint has to report before its weight is used. Default 10 s;
	// negative: none.
	Blackout time.Duration `yaml:"blackout"`
	// Expiry is the age at which a report is no longer used. Default 3 min.
	Expiry time.Duration `yaml:"expiry"`
	// Period is the time between computations of the weights. Default 1 s.
	Period time.Duration `yaml:"period"`
	// Smoothing is the time over which an endpoint's weights are averaged: reports of
	// short periods are noisy. Default 3 s; negative: none.
	Smoothing time.Duration `yaml:"smoothing"`
	// ErrorPenalty multiplies errors per call, which add to the utilisation.
	// Default 1; negative: none.
	ErrorPenalty float64 `yaml:"error_penalty"`
	// Metric, if set, is the named metric or utilization of a report that replaces the utilisation
	// if it is present, such as "kv_cache".
	Metric string `yaml:"metric"`
}

// Locality prefers endpoints of the same node, then of the same zone.
type Locality struct {
	// Node and Zone are the location of the picker. Empty: all are equally near.
	Node string `yaml:"node"`
	Zone string `yaml:"zone"`
	// Utilization is the utilisation of near endpoints above which calls go farther. Default 0.8.
	Utilization float64 `yaml:"utilization"`
	// Outstanding is the number of calls per unit of an endpoint's weight above which calls go
	// farther. Default 100.
	Outstanding int `yaml:"outstanding"`
}

func (l *Locality) enabled() bool { return l.Node != "" || l.Zone != "" }

// Subset bounds the endpoints of each tier that one client uses. Clients choose by rendezvous
// hashing: the choice is deterministic, and one endpoint more or less changes each client's subset
// by one endpoint at most.
type Subset struct {
	// Size is the size of the subset; zero: all endpoints.
	Size int `yaml:"size"`
	// Client names the process that picks.
	Client string `yaml:"client"`
}

// SlowStart raises a new endpoint's weight from Least to its full weight.
type SlowStart struct {
	// Window is the duration of the rise; zero: no slow start.
	Window time.Duration `yaml:"window"`
	// Aggression bends the rise: 1 is linear, more is faster at first. Default 1.
	Aggression float64 `yaml:"aggression"`
	// Least is the share at the beginning. Default 0.1.
	Least float64 `yaml:"least"`
}

// Ejection configures outlier ejection: endpoints that fail are not picked for a while. The codes
// Unknown, DeadlineExceeded, Internal, Unavailable and DataLoss blame the endpoint; Canceled is not
// counted; every other code is a success.
type Ejection struct {
	// Consecutive is the number of consecutive failures that ejects an endpoint; zero: none does.
	Consecutive int `yaml:"consecutive"`
	// SuccessRate ejects endpoints whose success rate is this many standard deviations below the
	// mean, in thousandths (1900 is 1.9); zero: rates are not compared.
	SuccessRate int `yaml:"success_rate"`
	// Requests is the number of calls in an Interval that an endpoint needs for its rate to be
	// compared; Hosts is the number of such endpoints that is needed. Defaults 100, 5 and 10 s.
	Requests int           `yaml:"requests"`
	Hosts    int           `yaml:"hosts"`
	Interval time.Duration `yaml:"interval"`
	// Base is the duration of the first ejection. Each ejection adds one Base to the next, up to
	// Longest, and each Interval without an ejection subtracts one. Defaults 30 s, 5 min.
	Base    time.Duration `yaml:"base"`
	Longest time.Duration `yaml:"longest"`
	// MaxPercent is the greatest percentage of the endpoints that may be ejected at once. Default
	// 50.
	MaxPercent int `yaml:"max_percent"`
}

func (e *Ejection) enabled() bool { return e.Consecutive > 0 || e.SuccessRate > 0 }

func (c *Config) setDefaults() {
	defaultTo(&c.Method, RoundRobin)
	defaultTo(&c.Choices, 2)
	defaultTo(&c.Reports.Blackout, 10*time.Second)
	defaultTo(&c.Reports.Expiry, 3*time.Minute)
	defaultTo(&c.Reports.Period, time.Second)
	defaultTo(&c.Reports.Smoothing, 3*time.Second)
	defaultTo(&c.Reports.ErrorPenalty, 1)
	defaultTo(&c.Locality.Utilization, 0.8)
	defaultTo(&c.Locality.Outstanding, 100)
	defaultTo(&c.SlowStart.Aggression, 1)
	defaultTo(&c.SlowStart.Least, 0.1)
	defaultTo(&c.Ejection.Requests, 100)
	defaultTo(&c.Ejection.Hosts, 5)
	defaultTo(&c.Ejection.Interval, 10*time.Second)
	defaultTo(&c.Ejection.Base, 30*time.Second)
	defaultTo(&c.Ejection.Longest, 5*time.Minute)
	defaultTo(&c.Ejection.MaxPercent, 50)
	if c.Random == nil {
		c.Random = rand.Uint64
	}
	c.Reports.Enabled = c.Reports.Enabled || c.Method == Weighted
}

func defaultTo[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// A settingError is a mistake in the setting at a path of a Config: members joined by dots.
type settingError struct{ path, text string }

func (e *settingError) Error() string { return e.path + ": " + e.text }

// validate returns the first mistake, nil if there is none.
func (c *Config) validate() *settingError {
	const negative = "it is below zero"
	for _, check := range []struct {
		wrong      bool
		path, text string
	}{
		{
			c.Method != RoundRobin && c.Method != LeastRequests && c.Method != Weighted,
			"method", fmt.Sprintf("%q: use round_robin, least_requests or weighted", c.Method),
		},
		{c.Choices < 0, "choices", negative},
		{c.Reports.Period < 0, "reports.period", negative},
		{c.Reports.Expiry < 0, "reports.expiry", negative},
		{c.Subset.Size < 0, "subset.size", negative},
		{c.Locality.Utilization < 0, "locality.utilization", negative},
		{c.Locality.Outstanding < 0, "locality.outstanding", negative},
		{c.SlowStart.Window < 0, "slow_start.window", negative},
		{c.SlowStart.Aggression < 0, "slow_start.aggression", negative},
		{c.SlowStart.Least < 0 || c.SlowStart.Least > 1, "slow_start.least", "it is a share, of 0 to 1"},
		{c.Ejection.MaxPercent < 0 || c.Ejection.MaxPercent > 100, "ejection.max_percent", "it is 1 to 100"},
		{c.Ejection.Consecutive < 0, "ejection.consecutive", negative},
		{c.Ejection.SuccessRate < 0, "ejection.success_rate", negative},
		{c.Ejection.Requests < 0, "ejection.requests", negative},
		{c.Ejection.Hosts < 0, "ejection.hosts", negative},
		{c.Ejection.Interval < 0, "ejection.interval", negative},
		{c.Ejection.Base < 0, "ejection.base", negative},
		{c.Ejection.Longest < 0, "ejection.longest", negative},
	} {
		if check.wrong {
			return &settingError{check.path, check.text}
		}
	}
	return nil
}
