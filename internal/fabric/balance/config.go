package balance

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Method is a way to choose among endpoints that are equally near.
type Method string

// The methods.
const (
	// RoundRobin takes turns, in proportion to the operator's weights.
	RoundRobin Method = "round_robin"
	// LeastRequests takes two (Choices) by chance and chooses the one with fewer
	// calls outstanding for its weight. Weights are the operator's, or come from
	// reports when Reports.Enabled.
	LeastRequests Method = "least_requests"
	// Weighted takes turns in proportion to what endpoints report: calls per
	// second over utilisation (gRFC A58).
	Weighted Method = "weighted"
)

// A Config composes a Picker. The zero value is round robin over everything.
type Config struct {
	Method Method `yaml:"method"`
	// Choices is how many endpoints LeastRequests compares. Default 2.
	Choices   int       `yaml:"choices"`
	Reports   Reports   `yaml:"reports"`
	Locality  Locality  `yaml:"locality"`
	Subset    Subset    `yaml:"subset"`
	SlowStart SlowStart `yaml:"slow_start"`
	Ejection  Ejection  `yaml:"ejection"`
	// Random is safe for concurrent use. Default: the runtime's generator.
	Random func() uint64 `yaml:"-"`
}

// Reports says how load reports become weights, as in gRFC A58.
type Reports struct {
	// Enabled makes LeastRequests use them; Weighted always does.
	Enabled bool `yaml:"enabled"`
	// Blackout is how long an endpoint has to report before its weight counts.
	// Default 10 s; negative: none.
	Blackout time.Duration `yaml:"blackout"`
	// Expiry is when a report no longer counts. Default 3 min.
	Expiry time.Duration `yaml:"expiry"`
	// Period is how often weights are computed anew. Default 1 s.
	Period time.Duration `yaml:"period"`
	// Smoothing is the time over which an endpoint's weights are averaged: reports of
	// short periods are noisy. Default 3 s; negative: none.
	Smoothing time.Duration `yaml:"smoothing"`
	// ErrorPenalty multiplies errors per call, which add to the utilisation.
	// Default 1; negative: none.
	ErrorPenalty float64 `yaml:"error_penalty"`
	// Metric, when set, is the named metric or utilization of a report that is
	// taken for the utilisation where it is present, such as "kv_cache".
	Metric string `yaml:"metric"`
}

// Locality prefers endpoints of the same node, then of the same zone.
type Locality struct {
	// Node and Zone are where the picker is. Empty: all are equally near.
	Node string `yaml:"node"`
	Zone string `yaml:"zone"`
	// Utilization of near endpoints above which calls go further. Default 0.8.
	Utilization float64 `yaml:"utilization"`
	// Outstanding is how many calls an endpoint may have for each unit of its
	// weight before further ones are asked. Default 100.
	Outstanding int `yaml:"outstanding"`
}

func (l *Locality) enabled() bool { return l.Node != "" || l.Zone != "" }

// Subset bounds how many endpoints of each tier one client uses. Clients choose
// by rendezvous hashing: deterministic, and one endpoint more or less changes
// each client's subset by one at most.
type Subset struct {
	// Size of the subset; zero: everything.
	Size int `yaml:"size"`
	// Client names the process that picks.
	Client string `yaml:"client"`
}

// SlowStart raises a new endpoint's weight from Least to its full one.
type SlowStart struct {
	// Window is how long that takes; zero: no slow start.
	Window time.Duration `yaml:"window"`
	// Aggression bends the rise: 1 is linear, more is faster at first. Default 1.
	Aggression float64 `yaml:"aggression"`
	// Least is the share to begin with. Default 0.1.
	Least float64 `yaml:"least"`
}

// Ejection takes endpoints that fail out of the picks for a while. The codes
// Unknown, DeadlineExceeded, Internal, Unavailable and DataLoss blame the
// endpoint; Canceled tells nothing; everything else is a success.
type Ejection struct {
	// Consecutive is how many failures in a row eject; zero: not looked at.
	Consecutive int `yaml:"consecutive"`
	// SuccessRate ejects those whose rate of success is this many standard
	// deviations under the mean, in thousandths (1900 is 1.9); zero: not looked at.
	SuccessRate int `yaml:"success_rate"`
	// Requests and Hosts are how many calls an endpoint needs in an Interval, and
	// how many such endpoints are needed. Defaults 100, 5 and 10 s.
	Requests int           `yaml:"requests"`
	Hosts    int           `yaml:"hosts"`
	Interval time.Duration `yaml:"interval"`
	// Base is for how long the first time; each time adds one Base, up to
	// Longest, and each Interval without takes one off. Defaults 30 s, 5 min.
	Base    time.Duration `yaml:"base"`
	Longest time.Duration `yaml:"longest"`
	// MaxPercent of the endpoints may be ejected at once, never more. Default 50.
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

func (c *Config) validate() error {
	for _, check := range []struct {
		wrong bool
		what  string
	}{
		{
			c.Method != RoundRobin && c.Method != LeastRequests && c.Method != Weighted,
			fmt.Sprintf("method %q: use round_robin, least_requests or weighted", c.Method),
		},
		{c.Choices < 0, "choices: below zero"},
		{c.Reports.Period < 0 || c.Reports.Expiry < 0, "reports: a time below zero"},
		{c.Subset.Size < 0, "subset: size below zero"},
		{c.Locality.Utilization < 0 || c.Locality.Outstanding < 0, "locality: a limit below zero"},
		{c.SlowStart.Window < 0 || c.SlowStart.Aggression < 0, "slow_start: a value below zero"},
		{c.SlowStart.Least < 0 || c.SlowStart.Least > 1, "slow_start: least is a share, of 0 to 1"},
		{c.Ejection.MaxPercent < 0 || c.Ejection.MaxPercent > 100, "ejection: max_percent is 1 to 100"},
		{c.Ejection.Consecutive < 0 || c.Ejection.SuccessRate < 0, "ejection: a limit below zero"},
		{c.Ejection.Interval < 0 || c.Ejection.Base < 0 || c.Ejection.Longest < 0, "ejection: a time below zero"},
	} {
		if check.wrong {
			return fmt.Errorf("balance: %s", check.what)
		}
	}
	return nil
}
