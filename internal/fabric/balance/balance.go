// Package balance picks the endpoint that a call goes to.
//
// A [Picker] is composed from one [Config]: a [Method] (round robin, least requests, weighted by
// load reports), and around it locality with spill-over, subsetting, slow start and outlier
// ejection. It is pure: time is an argument, randomness is injected, and it starts no goroutine.
// Periodic work (new weights, the end of an ejection) is done by the first call after it is due.
//
// A Picker is safe for concurrent use. Picks read a snapshot and count with atomics; only
// updates, reports and periodic work take a lock.
package balance

import (
	"errors"
	"fmt"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/outboard-run/outboard/fabric/call"
)

// ErrNoEndpoints reports that there is no endpoint to pick.
var ErrNoEndpoints = errors.New("balance: no endpoints")

// An Endpoint is one back end.
type Endpoint struct {
	// ID identifies the endpoint. Its state (load, errors, age) is retained by ID across
	// updates.
	ID string
	// Node and Zone are the location of the endpoint.
	Node, Zone string
	// Weight is the weight that the operator has set; zero is 1.
	Weight int
	// Value is returned with a pick.
	Value any
}

// A Picker picks endpoints for calls.
type Picker interface {
	// Update replaces the endpoints. Picks of removed endpoints may still be Done.
	Update(endpoints []Endpoint, now time.Time)
	// Pick chooses an endpoint for a call. Endpoints in exclude (the IDs of the endpoints of
	// earlier attempts) are picked only if no other is left.
	Pick(h *call.Head, exclude []string, now time.Time) (Pick, error)
	// Report applies an out-of-band load report.
	Report(id string, load *orca.OrcaLoadReport, now time.Time)
	// Status describes each endpoint, including endpoints outside the subset, in the order of their
	// IDs.
	Status(now time.Time) []Status
}

// An Outcome is the outcome of a call.
type Outcome struct {
	// Err is nil or an error of package status. [Ejection] lists the codes that blame the endpoint.
	Err error
	// Load is the report that arrived with the call, or nil.
	Load *orca.OrcaLoadReport
}

// A Pick is an endpoint that has been chosen. Done or Cancel is called once for each.
type Pick struct {
	picker *picker
	member *member
}

// Endpoint returns the picked endpoint.
func (p Pick) Endpoint() *Endpoint { return &p.member.Endpoint }

// Done reports the end of the call.
func (p Pick) Done(o Outcome, now time.Time) { p.picker.done(p.member, o, now) }

// Cancel undoes a pick that had no call, or whose call says nothing about the endpoint.
func (p Pick) Cancel() { p.member.state.outstanding.Add(-1) }

// A Status is the state of one endpoint in a picker.
type Status struct {
	ID string
	// Tier is the endpoint's distance: 0 is nearest. Subset reports whether the endpoint is in the
	// client's subset.
	Tier   int
	Subset bool
	// Weight is the endpoint's share of the weight of its tier, from 0 to 1.
	Weight float64
	// Utilization is the last reported utilisation; zero if it is unknown or too old.
	Utilization float64
	Outstanding int64
	Picks       uint64
	Ejected     bool
	// Ejections counts the ejections of the endpoint.
	Ejections uint64
}

// New returns a Picker without endpoints.
func New(c Config) (Picker, error) {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("balance: %w", err)
	}
	return &picker{config: c, states: make(map[string]*state)}, nil
}
