package node

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// events writes the answer of a lease's request, one line at a time.
type events struct {
	encoder *json.Encoder
	control *http.ResponseController
}

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &events{encoder: json.NewEncoder(w), control: http.NewResponseController(w)}
}

func (e *events) send(event client.LeaseEvent) error {
	if err := e.encoder.Encode(event); err != nil {
		return err
	}
	return e.control.Flush()
}

// releaseLimit is how long giving a lease back may take when its holder is gone.
const releaseLimit = 5 * time.Second

// postLease acquires leases that last as long as the request. Life is that of the
// node's API.
func (n *Node) postLease(life context.Context, w http.ResponseWriter, r *http.Request) {
	var request client.LeaseRequest
	if err := readBody(w, r, &request); err != nil {
		api.Refuse(w, err)
		return
	}
	h := &holding{node: n, out: newEvents(w)}
	err := h.acquire(r.Context(), request)
	if err == nil {
		defer h.release(life)
		err = h.grant()
	}
	if err == nil {
		err = h.keep(r.Context())
	}
	if err != nil {
		_ = h.out.send(client.LeaseEvent{Failed: client.FailureOf(err)}) // the client hung up
	}
}

// holding is the leases of one request.
type holding struct {
	node   *Node
	out    *events
	leases []outboard.Lease
	// life is how long a lease lives without being renewed.
	life time.Duration
	// vouched is when the credentials for other nodes were made.
	vouched time.Time
}

// acquire waits for the leases and tells about the wait.
func (h *holding) acquire(ctx context.Context, request client.LeaseRequest) error {
	if request.Count < 0 || request.Weight < 0 || request.Timeout < 0 {
		return outboard.Errorf(outboard.Invalid, "lease", "count, weight and timeout must not be negative")
	}
	timeout := time.Duration(request.Timeout)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	waiting, stop := h.tellWaiting()
	leases, err := h.node.pool.Acquire(ctx, pool.Request{
		Selector: request.Selector, Count: request.Count, Memory: request.Memory, Weight: request.Weight,
		Program: request.Program, NoWait: request.NoWait, Progress: waiting,
	})
	stop()
	if errors.Is(err, context.DeadlineExceeded) {
		if why, ok := errors.AsType[*outboard.Error](err); ok && why.Kind == outboard.Busy {
			return outboard.Errorf(outboard.Busy, "", "waited %v for a device: %w; wait longer with --timeout", timeout, why)
		}
	}
	h.leases = leases
	return err
}

// tellWaiting returns a function that passes on where the request stands, and
// never blocks: what the client is too slow to hear is left out.
func (h *holding) tellWaiting() (tell func(pool.Waiting), stop func()) {
	news, done := make(chan client.Waiting, 1), make(chan struct{})
	go func() {
		defer close(done)
		for w := range news {
			if h.out.send(client.LeaseEvent{Waiting: &w}) != nil {
				continue // the client hung up; its context ends the wait
			}
		}
	}()
	tell = func(w pool.Waiting) {
		told := client.Waiting{Position: w.Position}
		for _, d := range w.Busy {
			for _, g := range d.Grants {
				told.Holders = append(told.Holders, outboard.Lease{Grant: g, Device: d.ID})
			}
		}
		select {
		case <-news: // nobody has seen the one before
		default:
		}
		news <- told
	}
	return tell, func() {
		close(news)
		<-done
	}
}

// grant tells the client what it got.
func (h *holding) grant() error {
	h.life = time.Until(h.leases[0].Expires)
	grant, err := h.describe()
	if err != nil {
		return err
	}
	return h.out.send(client.LeaseEvent{Granted: grant})
}

// describe gives what sessions need of the leases as they are now.
func (h *holding) describe() (*client.Grant, error) {
	n, grant := h.node, &client.Grant{}
	for _, l := range h.leases {
		granted, err := n.describe(l)
		if err != nil {
			return nil, err
		}
		grant.Leases = append(grant.Leases, granted)
	}
	if now := time.Now(); now.Sub(h.vouched) > authority.SessionLife/2 {
		credentials, err := n.vouch(now)
		if err != nil {
			return nil, err
		}
		grant.Credentials, h.vouched = credentials, now
	}
	return grant, nil
}

// describe says how to use a lease.
func (n *Node) describe(l outboard.Lease) (client.Granted, error) {
	g := client.Granted{Lease: l}
	for _, d := range n.pool.Devices() {
		if d.ID == l.Device {
			g.About = d.Device
		}
	}
	claim, err := n.pool.Claim(l)
	if err != nil {
		return g, err
	}
	g.Claim = claim
	if g.About.Node == n.self.ID {
		return g, nil
	}
	owner, ok := n.pool.Node(g.About.Node)
	if !ok {
		return g, outboard.Errorf(outboard.Unreachable, "lease of "+string(l.Device), "the device's node left the pool")
	}
	g.Addr, g.Fingerprint = owner.Addr, owner.Fingerprint
	return g, nil
}

// vouch makes credentials with which a program reaches other nodes.
func (n *Node) vouch(now time.Time) (*client.Credentials, error) {
	cert, err := n.identity.SessionCertificate(now)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, err
	}
	c := &client.Credentials{
		Key:       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		Authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.identity.Root.Raw}),
	}
	for _, der := range cert.Certificate {
		c.Certificate = append(c.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return c, nil
}

// keep renews the leases until ctx ends or one is lost.
func (h *holding) keep(ctx context.Context) error {
	tick := time.NewTicker(max(h.life/3, time.Millisecond))
	defer tick.Stop()
	for {
		changed := h.node.pool.Changed()
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

// renew renews every lease. A state that does not answer is no reason to give
// up: nobody else gets the devices meanwhile.
func (h *holding) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.life/3)
	defer cancel()
	for i, l := range h.leases {
		renewed, err := h.node.pool.Renew(ctx, l)
		switch {
		case err == nil:
			h.leases[i] = renewed
		case outboard.KindOf(err) == outboard.LeaseLost:
			return err
		default:
			h.node.log.Warn("a lease was not renewed, trying again", "device", l.Device, "error", err)
			return nil
		}
	}
	grant, err := h.describe()
	if err != nil {
		// The device's node is away, and the leases stand: sessions will say so.
		return nil
	}
	return h.out.send(client.LeaseEvent{Renewed: grant})
}

// lost returns the first lease that no longer stands.
func (h *holding) lost() *client.Lost {
	standing := map[outboard.LeaseID]bool{}
	for _, l := range h.node.pool.Leases() {
		standing[l.Lease] = true
	}
	for _, l := range h.leases {
		if !standing[l.Lease] {
			err := outboard.Errorf(outboard.LeaseLost, "lease of "+string(l.Device), "it expired or was taken back")
			return &client.Lost{Lease: l.Lease, Reason: *client.FailureOf(err)}
		}
	}
	return nil
}

// release gives the leases back, unless life ends: a node that stops leaves the
// pool, which voids all its leases at once.
func (h *holding) release(life context.Context) {
	ctx, cancel := context.WithTimeout(life, releaseLimit)
	defer cancel()
	for _, l := range h.leases {
		if err := h.node.pool.Release(ctx, l); err != nil && life.Err() == nil {
			h.node.log.Warn("a lease was not given back: it will expire", "device", l.Device, "error", err)
		}
	}
}
