package router

import (
	"cmp"
	"slices"
	"time"
)

// A Row is one method's line in the live table: calls of the last 5 to 10 seconds, and calls in
// flight.
type Row struct {
	Service, Method string
	// Rate is the number of calls that ended per second; Errors is the number of them whose status
	// was not OK.
	Rate, Errors float64
	// P50 and P99 are percentiles of the duration of calls, within an eighth; zero without calls.
	P50, P99 time.Duration
	// Sent and Received are bytes of messages per second, to and from endpoints.
	Sent, Received float64
	InFlight       int64
	// Calls is the number of calls that have ended since the router began.
	Calls uint64
	// Acted counts the effects of each policy since the router began.
	Acted []Acted
}

// Acted counts the calls that a policy affected.
type Acted struct {
	Policy string
	Calls  uint64
}

// Calls returns the live table, in the order of services and methods.
func (r *Router) Calls() []Row {
	now := time.Now()
	methods := r.stats.methods.all()
	rows := make([]Row, 0, len(methods))
	for _, m := range methods {
		rows = append(rows, m.row(now))
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Method, b.Method))
	})
	return rows
}

func (m *method) row(now time.Time) Row {
	r := Row{Service: m.service, Method: m.name, InFlight: m.inFlight.Load(), Acted: m.actedBy()}
	for i := range m.codes {
		r.Calls += m.codes[i].Load()
	}
	number := now.UnixNano() / int64(windowLength)
	span := windowLength + time.Duration(now.UnixNano()%int64(windowLength))
	var times [buckets]uint64
	for i := range m.windows {
		if w := &m.windows[i]; !w.isStale(number - 1) {
			w.addTo(&r, &times)
		}
	}
	for _, v := range []*float64{&r.Rate, &r.Errors, &r.Sent, &r.Received} {
		*v /= span.Seconds()
	}
	r.P50, r.P99 = quantile(&times, 0.5), quantile(&times, 0.99)
	return r
}

func (w *window) addTo(r *Row, times *[buckets]uint64) {
	r.Rate += float64(w.calls.Load())
	r.Errors += float64(w.errors.Load())
	r.Sent += float64(w.sent.Load())
	r.Received += float64(w.received.Load())
	for i := range w.times {
		times[i] += uint64(w.times[i].Load())
	}
}

func quantile(times *[buckets]uint64, q float64) time.Duration {
	total := uint64(0)
	for _, n := range times {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(total)+0.999999))
	for i, n := range times {
		if n >= rank {
			return bucketEnd(i)
		}
		rank -= n
	}
	return bucketEnd(buckets - 1)
}

func (m *method) actedBy() []Acted {
	counts := m.acted.all()
	if len(counts) == 0 {
		return nil
	}
	list := make([]Acted, 0, len(counts))
	for name, n := range counts {
		list = append(list, Acted{name, n.Load()})
	}
	slices.SortFunc(list, func(a, b Acted) int { return cmp.Compare(a.Policy, b.Policy) })
	return list
}
