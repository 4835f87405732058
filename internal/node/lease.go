package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// leaseAPI serves requests for leases. Each lease lasts as long as its request.
type leaseAPI struct {
	pool   *pool.Pool
	state  *state.State
	grants *grants
	log    *slog.Logger
}

// An eventWriter writes the response to a lease request, one event a line.
type eventWriter struct {
	encoder *json.Encoder
	control *http.ResponseController
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &eventWriter{encoder: json.NewEncoder(w), control: http.NewResponseController(w)}
}

func (e *eventWriter) send(event client.LeaseEvent) error {
	if err := e.encoder.Encode(event); err != nil {
		return err
	}
	return e.control.Flush()
}

// post acquires leases and holds them as long as the request lasts. life is the context of the
// node's API.
func (a *leaseAPI) post(life context.Context, w http.ResponseWriter, r *http.Request) {
	var request client.LeaseRequest
	if err := readBody(w, r, &request); err != nil {
		api.Refuse(w, err)
		return
	}
	h := &heldLeases{api: a, out: newEventWriter(w)}
	err := h.acquire(r.Context(), request)
	if err == nil {
		defer h.release(life)
		err = h.grant()
	}
	if err == nil {
		err = h.keepAlive(r.Context())
	}
	if err != nil {
		_ = h.out.send(client.LeaseEvent{Failed: client.FailureOf(err)}) // the client hung up
	}
}

// heldLeases are the leases of one request.
type heldLeases struct {
	api    *leaseAPI
	out    *eventWriter
	leases []outboard.Lease
	// life is how long a lease lives without being renewed.
	life time.Duration
	// certified is when the credentials for other nodes were made.
	certified time.Time
}

// acquire waits for the leases and reports its position in the queue.
func (h *heldLeases) acquire(ctx context.Context, request client.LeaseRequest) error {
	if request.Count < 0 || request.Weight < 0 || request.Timeout < 0 {
		return outboard.Errorf(outboard.Invalid, "lease", "count, weight and timeout must not be negative")
	}
	if request.Weight > outboard.MaxWeight {
		return outboard.Errorf(outboard.Invalid, "lease", "weight %d: want at most %d", request.Weight, outboard.MaxWeight)
	}
	if len(request.Prefer) > client.MaxNamedDevices || len(request.Exclude) > client.MaxNamedDevices {
		return outboard.Errorf(outboard.Invalid, "lease", "%d and %d devices are named: want at most %d", len(request.Prefer), len(request.Exclude), client.MaxNamedDevices)
	}
	timeout := time.Duration(request.Timeout)
	progress, stop := h.reportWaiting()
	answered, end := h.api.state.WhileAnswered(ctx, outageLimit(timeout))
	defer end()
	leases, err := h.api.pool.Acquire(answered, pool.Request{
		Selector: request.Selector, Count: request.Count, Memory: request.Memory, Weight: request.Weight,
		Prefer: request.Prefer, Exclude: request.Exclude, Program: request.Program, NoWait: request.NoWait,
		Timeout: timeout, Progress: progress,
	})
	stop()
	if err != nil && ctx.Err() == nil {
		err = withStateHealth(answered, h.api.state, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if why, ok := errors.AsType[*outboard.Error](err); ok && why.Kind == outboard.Busy {
			return outboard.Errorf(outboard.Busy, "", "waited %v for a device: %w; wait longer with --timeout", timeout, why)
		}
	}
	h.leases = leases
	return err
}

// leastOutage is how long a request waits at least for a state that does not answer: an election of
// the pool's state takes some seconds.
const leastOutage = 15 * time.Second

// outageLimit returns how long a request for leases that waits in the queue for timeout, 0 for ever,
// waits for a state that does not answer.
func outageLimit(timeout time.Duration) time.Duration {
	if timeout == 0 {
		return 0
	}
	return max(timeout, leastOutage)
}

// withStateHealth returns why a request for leases failed. answered is its context, as
// State.WhileAnswered returned it. While the state does not answer, the records of nodes expire, and
// the pool seems to have no devices.
func withStateHealth(answered context.Context, state healthSource, err error) error {
	if answered.Err() != nil {
		return context.Cause(answered)
	}
	unhealthy := state.Health()
	if outboard.KindOf(err) != outboard.NoDevice || unhealthy == nil {
		return err
	}
	return outboard.Errorf(outboard.KindOf(unhealthy), "lease a device", "the pool's devices are not known: %w", unhealthy)
}

// reportWaiting returns a function that sends the client the request's position in the queue. It
// never blocks: a newer position replaces an unsent one.
func (h *heldLeases) reportWaiting() (report func(pool.Waiting), stop func()) {
	latest, done := make(chan client.Waiting, 1), make(chan struct{})
	go func() {
		defer close(done)
		for w := range latest {
			if h.out.send(client.LeaseEvent{Waiting: &w}) != nil {
				continue // the client hung up; its context ends the wait
			}
		}
	}()
	report = func(w pool.Waiting) {
		waiting := client.Waiting{Position: w.Position}
		for _, d := range w.Busy {
			for _, g := range d.Grants {
				waiting.Holders = append(waiting.Holders, outboard.Lease{Grant: g, Device: d.ID})
			}
		}
		select {
		case <-latest: // the earlier position was not sent yet
		default:
		}
		latest <- waiting
	}
	return report, func() {
		close(latest)
		<-done
	}
}

// grant sends the client its leases.
func (h *heldLeases) grant() error {
	h.life = time.Until(h.leases[0].Expires)
	grant, err := h.describe()
	if err != nil {
		return err
	}
	return h.out.send(client.LeaseEvent{Granted: grant})
}

// describe returns the data with which sessions use the leases.
func (h *heldLeases) describe() (*client.Grant, error) {
	grant := &client.Grant{}
	for _, l := range h.leases {
		granted, err := h.api.grants.describe(l)
		if err != nil {
			return nil, err
		}
		grant.Leases = append(grant.Leases, granted)
	}
	if now := time.Now(); now.Sub(h.certified) > authority.SessionLife/2 {
		credentials, err := h.api.grants.credentials(now)
		if err != nil {
			return nil, err
		}
		grant.Credentials, h.certified = credentials, now
	}
	return grant, nil
}

// keepAlive renews the leases until ctx ends or one is lost.
func (h *heldLeases) keepAlive(ctx context.Context) error {
	tick := time.NewTicker(max(h.life/3, time.Millisecond))
	defer tick.Stop()
	for {
		changed := h.api.pool.Changed()
		if lost := h.lost(); lost != nil {
			return h.out.send(client.LeaseEvent{Lost: lost})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
			if err := h.renew(ctx); err != nil {
				return err
			}
		}
	}
}

// renew renews every lease. If the state does not answer, the leases still stand: no other program
// gets the devices before they expire.
func (h *heldLeases) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.life/3)
	defer cancel()
	for i, l := range h.leases {
		renewed, err := h.api.pool.Renew(ctx, l)
		switch {
		case err == nil:
			h.leases[i] = renewed
		case outboard.KindOf(err) == outboard.LeaseLost:
			return err
		default:
			h.api.log.Warn("a lease was not renewed, trying again", "device", l.Device, "error", err)
			return nil
		}
	}
	grant, err := h.describe()
	if err != nil {
		// The device's node is away, but the leases stand: sessions report its absence.
		return nil
	}
	return h.out.send(client.LeaseEvent{Renewed: grant})
}

// lost returns the first lease that no longer stands.
func (h *heldLeases) lost() *client.Lost {
	standing := map[leaseKey]bool{}
	all := h.api.pool.Leases()
	for i := range all {
		standing[keyOfLease(&all[i])] = true
	}
	for i := range h.leases {
		if l := &h.leases[i]; !standing[keyOfLease(l)] {
			err := outboard.Errorf(outboard.LeaseLost, "lease of "+string(l.Device), "it expired or was taken back")
			return &client.Lost{Lease: l.Lease, Reason: *client.FailureOf(err)}
		}
	}
	return nil
}

// release releases the leases, unless life ends: a node that stops leaves the
// pool, which voids all its leases at once.
func (h *heldLeases) release(life context.Context) {
	ctx, cancel := context.WithTimeout(life, h.life) // then it has expired
	defer cancel()
	for _, l := range h.leases {
		if err := h.api.pool.Release(ctx, l); err != nil && life.Err() == nil {
			h.api.log.Warn("a lease was not released: it will expire", "device", l.Device, "error", err)
		}
	}
}
