package calls

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// propagation is the time within which every node has learned that an endpoint was withdrawn.
const propagation = time.Second

// offerLimit is how long the pool's table may take to store an offer.
const offerLimit = 10 * time.Second

// programs holds the programs that are connected to this process, and the endpoints that they
// offer.
type programs struct {
	registry *services.Registry
	offers   Offers
	process  int
	self     outboard.NodeID
	entrance *entrance // admits the calls of programs
	admit    Admitter
	changed  func() // called when the endpoints have changed
	// remoteCallers reports whether other nodes send calls to this process.
	remoteCallers func() bool
	life          *lifetime
	log           *slog.Logger

	mu        sync.Mutex
	connected map[*program]bool
	// tenantConns counts them by the tenant's identity, "" for programs.
	tenantConns map[string]int
	endpoints   map[string]*program // by their IDs
	draining    bool
	offered     map[*program]chan struct{} // offers in progress; each channel is closed at its end
}

func newPrograms(opts Options, life *lifetime, h handler) *programs {
	return &programs{
		registry: opts.Registry, offers: opts.Offers, process: opts.Process, self: opts.Self, life: life, log: opts.Logger,
		entrance: &entrance{handler: h, credentials: &credentials{identify: opts.Identify}}, admit: opts.Admit,
		connected: map[*program]bool{}, tenantConns: map[string]int{}, endpoints: map[string]*program{}, offered: map[*program]chan struct{}{},
	}
}

// A program is a program that is connected to the node.
type program struct {
	programs *programs
	conn     *shared.Conn
	entrance *entrance

	offering sync.Mutex // one offer at a time
	id       string     // of its endpoint, "" if it offers none; under programs.mu
	moved    bool       // another process reaches that endpoint now; under programs.mu
	gone     bool       // it has no endpoint any more, and gets none; under programs.mu
}

// serve accepts programs until ctx ends.
func (ps *programs) serve(ctx context.Context, l *shared.Listener) {
	err := l.Serve(ctx, func(c *shared.Conn) error {
		e, err := ps.entranceOf(ctx, c)
		if err != nil {
			ps.log.Warn("peer refused", "socket", "calls.sock", "error", err)
			return err
		}
		return ps.add(c, e)
	})
	if err != nil {
		ps.log.Error("programs are not served any more", "error", err)
	}
}

// admitLimit is how long the node may take to decide about a process that connects.
const admitLimit = 5 * time.Second

// entranceOf returns the entrance for the calls of a process that connects, or an error if the node
// refuses the process.
func (ps *programs) entranceOf(ctx context.Context, c *shared.Conn) (*entrance, error) {
	e := ps.entrance
	if ps.admit == nil {
		return e, nil
	}
	ctx, cancel := context.WithTimeout(ctx, admitLimit)
	defer cancel()
	err := c.CheckPeer(func(pid int) error {
		if pid == 0 {
			return nil // it is outside the node's PID namespace, where there is only the user's own code
		}
		admission, err := ps.admit(ctx, pid)
		switch {
		case err != nil:
			return err
		case admission.tenant() != "":
			e = &entrance{handler: e.handler, credentials: e.credentials, tenant: admission.tenant()}
		case admission != AdmitProgram:
			return outboard.Errorf(outboard.Denied, "connect to the node", "process %d is a worker or a rank of this node, or gone", pid)
		}
		return nil
	})
	return e, err
}

// maxTenantConns bounds the connections of a tenant's process, which has two: one for its calls and
// one for those of its peers.
const maxTenantConns = 64

func (ps *programs) add(c *shared.Conn, e *entrance) error {
	p := &program{programs: ps, conn: c, entrance: e}
	c.Handle(p)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if e.tenant != "" && ps.tenantConns[e.tenant] >= maxTenantConns {
		return outboard.Errorf(outboard.Exhausted, "connect to the node", "%s has %d connections", e.tenant, maxTenantConns)
	}
	ps.connected[p] = true
	ps.tenantConns[e.tenant]++
	if ps.draining {
		c.Drain()
	}
	ps.life.Go(func() {
		<-c.Draining()
		if c.Err() == nil {
			ps.drainProgram(p)
		}
		<-c.Done()
		ps.remove(p)
	})
	return nil
}

// drainProgram withdraws the endpoint of a program that stops, waits for its calls in flight and
// closes the connection. The program still gets calls from nodes that have not learned of the
// withdrawal.
func (ps *programs) drainProgram(p *program) {
	p.offering.Lock()
	ps.mu.Lock()
	p.gone = true
	id := p.id
	ps.mu.Unlock()
	p.offering.Unlock()
	if id != "" {
		ps.withdraw(id)
		if ps.remoteCallers() {
			sleep(ps.life.ctx, propagation)
		}
		ps.mu.Lock()
		if ps.endpoints[id] == p {
			delete(ps.endpoints, id)
		}
		ps.mu.Unlock()
		ps.changed()
	}
	// An error means that the process ends, and with it every call.
	_ = p.conn.Finish(ps.life.ctx)
	_ = p.conn.Close()
}

// withdraw removes an endpoint from the pool's table.
func (ps *programs) withdraw(id string) {
	life := ps.life.ctx
	ctx, cancel := context.WithTimeout(life, offerLimit)
	defer cancel()
	if err := ps.offers.Withdraw(ctx, id); err != nil && life.Err() == nil {
		ps.log.Warn("an endpoint that is gone is still offered", "endpoint", id, "error", err)
	}
	ps.changed()
}

// remove withdraws the endpoint of a program that is gone.
func (ps *programs) remove(p *program) {
	ps.mu.Lock()
	id := p.id
	p.gone = true
	delete(ps.connected, p)
	if ps.tenantConns[p.entrance.tenant]--; ps.tenantConns[p.entrance.tenant] == 0 {
		delete(ps.tenantConns, p.entrance.tenant)
	}
	if ps.endpoints[id] == p {
		delete(ps.endpoints, id)
	}
	ps.mu.Unlock()
	if id == "" {
		return
	}
	ps.changed()
	ps.withdraw(id)
}

// transport returns the connection of an endpoint's program, nil for none.
func (ps *programs) transport(id string) call.Transport {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.endpoints[id]; p != nil {
		return p.conn
	}
	return nil
}

// drain has all programs, also later ones, send their next calls on another connection.
func (ps *programs) drain() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.draining = true
	for p := range ps.connected {
		p.conn.Drain()
	}
}

// markMoved records that another process now reaches the program of an endpoint.
func (ps *programs) markMoved(id string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.endpoints[id]; p != nil {
		p.moved = true
	}
}

// allMoved reports whether no program depends on this process any more.
func (ps *programs) allMoved() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.connected {
		if !p.moved {
			return false
		}
	}
	return true
}

// publish publishes a program as an endpoint of its services, under its ID on a previous process if
// it has one, and returns the ID.
func (ps *programs) publish(ctx context.Context, p *program, previous string, e services.Endpoint, files *descriptorpb.FileDescriptorSet) (string, error) {
	ps.describe(ctx, e.Services, files)
	p.offering.Lock()
	defer p.offering.Unlock()
	ps.mu.Lock()
	e.ID = p.id
	done := make(chan struct{})
	ps.offered[p] = done
	ps.mu.Unlock()
	defer ps.endOffer(p, done)
	// The pool's table may get the endpoint of a program that ends meanwhile: so the offer is completed,
	// and withdrawn.
	e, err := ps.offers.Offer(ps.life.ctx, e, previous)
	if err != nil {
		return "", err
	}
	if !ps.register(p, e.ID) {
		ps.withdraw(e.ID)
		return "", errProgramLeaves
	}
	ps.changed()
	ps.offers.Settled(e.ID)
	return e.ID, nil
}

// errProgramLeaves is the error of an offer whose program ends or drains before the offer is stored.
var errProgramLeaves = errors.New("the program stops")

func (ps *programs) endOffer(p *program, done chan struct{}) {
	ps.mu.Lock()
	delete(ps.offered, p)
	ps.mu.Unlock()
	close(done)
}

// await returns the connection of an endpoint's program, nil for none, once the offers in progress of
// the programs that match have ended: the pool's table has an endpoint, and other processes call it,
// before its program is registered here.
func (ps *programs) await(ctx context.Context, id string, match func(*program) bool) call.Transport {
	for _, done := range ps.offersInProgress(match) {
		select {
		case <-done:
		case <-ctx.Done():
			return nil
		}
	}
	return ps.transport(id)
}

func (ps *programs) offersInProgress(match func(*program) bool) (all []<-chan struct{}) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p, done := range ps.offered {
		if match(p) {
			all = append(all, done)
		}
	}
	return all
}

func anyProgram(*program) bool { return true }

// pending returns the transport of an endpoint of this process that the pool's table has before its
// program is registered here, nil if no program that could be it offers anything now.
func (ps *programs) pending(e services.Endpoint) call.Transport {
	pending := pendingEndpoint{programs: ps, id: e.ID, pid: e.PID}
	if len(ps.offersInProgress(pending.mayBe)) == 0 {
		return nil
	}
	return pending
}

// mayOffer returns a status if an identity may not offer a service on this node. The process of a
// tenant offers only the service that is reserved for it.
func (ps *programs) mayOffer(service, identity string) error {
	if err := mayUse(service, identity); err != nil {
		return err
	}
	if strings.HasPrefix(identity, TenantIdentity) && owner(service) != identity {
		return status.Errorf(codes.PermissionDenied, "the process of a tenant may not offer service %s", service)
	}
	if !offeredBy(service, ps.self) {
		return status.Errorf(codes.PermissionDenied, "service %s belongs to another node", service)
	}
	return nil
}

// describe stores the descriptors of services. A service without descriptors is served all the
// same, but policies on its fields and reflection don't work.
func (ps *programs) describe(ctx context.Context, names []string, files *descriptorpb.FileDescriptorSet) {
	if len(files.GetFile()) == 0 {
		return
	}
	for _, name := range names {
		if err := ps.registry.Describe(ctx, name, files); err != nil {
			ps.log.Warn("service without descriptors", "service", name, "error", err)
		}
	}
}

// register makes a program reachable by its endpoint's ID, unless it is gone.
func (ps *programs) register(p *program, id string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.gone {
		return false
	}
	p.id = id
	ps.endpoints[id] = p
	return true
}

// Serve implements call.Handler.
func (p *program) Serve(s call.ServerStream) error {
	if s.Head().Method != offer.Method {
		return p.entrance.Serve(s)
	}
	request, err := s.Recv()
	if err != nil {
		return err
	}
	response, end, err := p.offer(s.Context(), s.Head(), request)
	if err != nil {
		return err
	}
	if err := s.SendHeader(end.Header); err != nil {
		return err
	}
	return s.Send(response)
}

// ServeUnary implements call.UnaryHandler.
func (p *program) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	if h.Method == offer.Method {
		return p.offer(ctx, h, request)
	}
	return p.entrance.ServeUnary(ctx, h, request)
}

// offer serves a program's request to offer its services.
func (p *program) offer(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	defer request.Free()
	text, err := request.Bytes()
	if err != nil {
		return nil, call.End{}, err
	}
	var files descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(text, &files); err != nil {
		return nil, call.End{}, status.Errorf(codes.InvalidArgument, "offer: %v", err)
	}
	if h, err = p.entrance.identified(ctx, h); err != nil {
		return nil, call.End{}, err
	}
	names := h.Metadata.Get(offer.ServiceKey)
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, call.End{}, status.Errorf(codes.InvalidArgument, "offer: name the services in %s", offer.ServiceKey)
	}
	for _, name := range names {
		if err := p.programs.mayOffer(name, h.Tenant); err != nil {
			return nil, call.End{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, offerLimit)
	defer cancel()
	previous := strings.Join(h.Metadata.Get(offer.EndpointKey), "")
	id, err := p.programs.publish(ctx, p, previous, services.Endpoint{
		Services: names, Program: strings.Join(h.Metadata.Get(offer.ProgramKey), " "),
		PID: p.conn.Peer().PID, Started: time.Now().UTC(), Process: p.programs.process,
	}, &files)
	if err != nil {
		return nil, call.End{}, status.Errorf(codes.Unavailable, "offer: %v", err)
	}
	return &call.Message{Data: []byte{}}, call.End{Header: metadata.MD{offer.EndpointKey: {id}}}, nil
}
