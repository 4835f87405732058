package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/outboard-run/outboard"
)

// A LeaseRequest requests leases of devices.
type LeaseRequest struct {
	// Selector selects the devices that may be leased.
	Selector outboard.Selector `json:"selector"`
	// Count is the number of distinct devices; 0 means 1.
	Count int `json:"count,omitempty"`
	// Memory bounds the memory that each lease may allocate; 0 means the whole device.
	Memory outboard.Bytes `json:"memory,omitempty"`
	// Weight is the share of device time relative to other leases; 0 means 1.
	Weight int `json:"weight,omitempty"`
	// Prefer names the devices that are best for the request, the best first. Exclude names the
	// devices that it must not get. Each has at most MaxNamedDevices.
	Prefer  []outboard.DeviceID `json:"prefer,omitempty"`
	Exclude []outboard.DeviceID `json:"exclude,omitempty"`
	// NoWait fails with outboard.Busy instead of waiting in the queue.
	NoWait bool `json:"no_wait,omitempty"`
	// Timeout bounds the time in the queue; 0 means no bound.
	Timeout Duration `json:"timeout,omitempty"`
	// Program describes the user of the leases, for people.
	Program string `json:"program,omitempty"`
}

// MaxNamedDevices bounds the devices that a request names.
const MaxNamedDevices = 1024

// Waiting describes a request's place in the queue.
type Waiting struct {
	// Position is 1 for the next request to be granted.
	Position int `json:"position"`
	// Holders are the leases on devices that match the request.
	Holders []outboard.Lease `json:"holders,omitempty"`
}

// A Granted is a lease with the data that a session needs to start.
type Granted struct {
	outboard.Lease
	// About is the leased device.
	About outboard.Device `json:"about"`
	// Addr is the address of the device's node. It is empty if the device is on the node that
	// granted the lease, which then serves the socket session.sock.
	Addr string `json:"addr,omitempty"`
	// Fingerprint is the fingerprint of the certificate of the device's node.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Claim proves the lease to the device's node.
	Claim []byte `json:"claim"`
}

// Credentials let the holder of leases connect to other nodes of the pool.
type Credentials struct {
	// Certificate, Key and Authority are PEM blocks.
	Certificate []byte `json:"certificate,omitempty"`
	Key         []byte `json:"key,omitempty"`
	Authority   []byte `json:"authority,omitempty"`
}

// A LeaseEvent is one line of the response to POST /v1/leases. One field is set.
type LeaseEvent struct {
	Waiting *Waiting `json:"waiting,omitempty"`
	Granted *Grant   `json:"granted,omitempty"`
	Renewed *Grant   `json:"renewed,omitempty"`
	Lost    *Lost    `json:"lost,omitempty"`
	Failed  *Failure `json:"failed,omitempty"`
}

// A Grant has the leases of a request, or the renewed ones among them.
type Grant struct {
	Leases      []Granted    `json:"leases"`
	Credentials *Credentials `json:"credentials,omitempty"`
}

// A Lost reports that a lease ended before it was closed.
type Lost struct {
	Lease  outboard.LeaseID `json:"lease"`
	Reason Failure          `json:"reason"`
}

// A Hold has the leases of one request. The node renews them until the Hold is closed, one of
// the leases is lost, or the node ends.
type Hold struct {
	body    io.Closer
	release context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex
	leases []Granted
	creds  Credentials
	closed bool
	err    error
}

// Acquire requests leases and waits until all of them are granted. It calls progress, unless that
// is nil, whenever the request's place in the queue changes.
func (c *Client) Acquire(ctx context.Context, request LeaseRequest, progress func(Waiting)) (*Hold, error) {
	// The leases live as long as the HTTP request, which therefore outlives ctx: ctx ends
	// only the waiting.
	life, release := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, release)
	defer stop()
	response, err := c.open(life, http.MethodPost, "/v1/leases", request)
	if err != nil {
		release()
		return nil, errors.Join(ctx.Err(), ignoreCanceled(err))
	}
	h := &Hold{body: response.Body, release: release, done: make(chan struct{})}
	events := json.NewDecoder(response.Body)
	if err := h.await(events, progress); err != nil {
		release()
		_ = response.Body.Close()
		return nil, errors.Join(ctx.Err(), ignoreCanceled(err))
	}
	go h.readEvents(events)
	return h, nil
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// await reads events until the leases are granted.
func (h *Hold) await(events *json.Decoder, progress func(Waiting)) error {
	for {
		var event LeaseEvent
		if err := events.Decode(&event); err != nil {
			return streamEnded(err)
		}
		switch {
		case event.Waiting != nil && progress != nil:
			progress(*event.Waiting)
		case event.Failed != nil:
			return event.Failed.Err()
		case event.Granted != nil:
			h.leases = event.Granted.Leases
			h.renew(*event.Granted)
			return nil
		}
	}
}

// readEvents reads events until the leases end.
func (h *Hold) readEvents(events *json.Decoder) {
	defer close(h.done)
	for {
		var event LeaseEvent
		err := events.Decode(&event)
		switch {
		case err != nil:
			err = streamEnded(err)
		case event.Failed != nil:
			err = event.Failed.Err()
		case event.Lost != nil:
			err = event.Lost.Reason.Err()
		case event.Renewed != nil:
			h.renew(*event.Renewed)
		}
		if err != nil {
			h.end(err)
			return
		}
	}
}

// end records the reason why the leases ended, unless Close ended them.
func (h *Hold) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.err = err
	}
}

func (h *Hold) renew(grant Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if grant.Credentials != nil {
		h.creds = *grant.Credentials
	}
	for _, renewed := range grant.Leases {
		for i := range h.leases {
			if h.leases[i].Lease.Lease == renewed.Lease.Lease {
				h.leases[i] = renewed
			}
		}
	}
}

func streamEnded(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return outboard.Errorf(outboard.LeaseLost, "", "the node that held the lease ended: %w", err)
}

// Leases returns the leases in their last renewed state.
func (h *Hold) Leases() []Granted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.leases)
}

// Credentials returns the latest credentials for other nodes.
func (h *Hold) Credentials() Credentials {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.creds
}

// Done returns a channel that is closed when the leases have ended.
func (h *Hold) Done() <-chan struct{} { return h.done }

// Err returns the reason why the leases ended. It is nil while they are valid and after Close.
func (h *Hold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Close releases the leases.
func (h *Hold) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.release()
	err := h.body.Close()
	<-h.done
	return ignoreCanceled(err)
}
