// Package quota bounds the bytes that a tenant holds on a node, by the kind of use.
//
// An [Account] has a [Budget] for each kind. Code that holds bytes for a tenant reserves them first
// and releases them afterwards; bytes beyond the limit are refused with an error that names the
// limit and how to change it. A tenant's process has one account.
package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
)

// A Kind is the use for which bytes are held.
type Kind string

// The kinds.
const (
	// Requests are bodies and messages that are being read, wait for a function, or are worked on.
	Requests Kind = "requests"
	// Arenas are the memory that functions and steps of workflows share.
	Arenas Kind = "arenas"
	// Logs are the lines that functions printed, as far as they are kept.
	Logs Kind = "logs"
	// Buckets are the keys and values of the buckets that are open.
	Buckets Kind = "buckets"
	// Executions are the values that the running tasks of workflows hold.
	Executions Kind = "executions"
	// Store is the data of the tenant in the state of the pool: histories of executions, events,
	// buckets and apps. The nodes' guards of the state enforce it, for the whole pool, so an
	// account has no budget of it.
	Store Kind = "store"
	// Memory is the memory of the tenant's process as a whole. Its control group enforces it, so an
	// account has no budget of it.
	Memory Kind = "memory"
)

// Limits bound the bytes that a tenant may hold on a node. A missing kind has its default.
type Limits map[Kind]outboard.Bytes

// defaults are the limits of kinds that are not configured. Memory is not among them: its default
// is three quarters of the machine's.
var defaults = Limits{Requests: 512 << 20, Arenas: 4 << 30, Logs: 64 << 20, Buckets: 1 << 30, Executions: 1 << 30}

// defaultStore is the default of Store.
const defaultStore = 512 << 20

// Default returns the limit of a kind that is not configured, 0 for none.
func Default(kind Kind) outboard.Bytes {
	if kind == Store {
		return defaultStore
	}
	return defaults[kind]
}

// Parse reads limits: KIND=SIZE with semicolons between.
func Parse(text string) (Limits, error) {
	limits := Limits{}
	for setting := range strings.SplitSeq(text, ";") {
		key, value, ok := strings.Cut(strings.TrimSpace(setting), "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KIND=SIZE", setting)
		}
		kind := Kind(key)
		if _, known := defaults[kind]; !known && kind != Memory && kind != Store {
			return nil, fmt.Errorf("unknown kind %q: known are requests, arenas, logs, buckets, executions, store, memory", key)
		}
		var size outboard.Bytes
		if err := size.UnmarshalText([]byte(value)); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", key, value, err)
		}
		if size == 0 {
			return nil, fmt.Errorf("%s=%s: want a size above 0", key, value)
		}
		limits[kind] = size
	}
	return limits, nil
}

// String returns the limits as Parse reads them.
func (l Limits) String() string {
	var settings []string
	for _, kind := range slices.Sorted(maps.Keys(l)) {
		settings = append(settings, string(kind)+"="+l[kind].String())
	}
	return strings.Join(settings, ";")
}

// Account has the budgets of one tenant on a node. It implements prometheus.Collector.
type Account struct {
	budgets map[Kind]*Budget
}

var _ prometheus.Collector = (*Account)(nil)

// NewAccount returns an account with the limits.
func NewAccount(limits Limits) *Account {
	a := &Account{budgets: map[Kind]*Budget{}}
	for kind, limit := range defaults {
		if own, ok := limits[kind]; ok {
			limit = own
		}
		a.budgets[kind] = NewBudget(kind, limit)
	}
	return a
}

// Budget returns the budget of a kind; nil, without a limit, for Store and Memory.
func (a *Account) Budget(kind Kind) *Budget { return a.budgets[kind] }

var (
	heldDesc    = prometheus.NewDesc("outboard_tenant_held_bytes", "Bytes that the tenant holds on this node, by what for.", []string{"kind"}, nil)
	limitDesc   = prometheus.NewDesc("outboard_tenant_limit_bytes", "Bytes that the tenant may hold on this node, by what for.", []string{"kind"}, nil)
	refusedDesc = prometheus.NewDesc("outboard_tenant_refused_total", "What was refused because the tenant held all that it may, by what for.", []string{"kind"}, nil)
)

// Describe implements prometheus.Collector.
func (*Account) Describe(to chan<- *prometheus.Desc) {
	to <- heldDesc
	to <- limitDesc
	to <- refusedDesc
}

// Collect implements prometheus.Collector.
func (a *Account) Collect(to chan<- prometheus.Metric) {
	for kind, b := range a.budgets {
		used, refused := b.counts()
		to <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(used), string(kind))
		to <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(b.limit), string(kind))
		to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(refused), string(kind))
	}
}
