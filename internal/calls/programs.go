package calls

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// offerLimit is how long the pool's table may take to learn of an offer.
const offerLimit = 10 * time.Second

// A program is connected to the node.
type program struct {
	plane *Plane
	conn  *shared.Conn
	calls counted

	offering sync.Mutex // one offer at a time
	id       string     // of its endpoint, "" while it offers nothing; under Plane.mu
	moved    bool       // it is that endpoint on another process now; under Plane.mu
	gone     bool       // under Plane.mu
}

func (p *Plane) servePrograms(ctx context.Context, l *shared.Listener) {
	err := l.Serve(ctx, func(c *shared.Conn) error {
		p.welcome(c)
		return nil
	})
	if err != nil {
		p.log.Error("programs are not served any more", "error", err)
	}
}

// welcome notes a program that has connected.
func (p *Plane) welcome(c *shared.Conn) {
	g := &program{plane: p, conn: c, calls: counted{p, p.router, p.router}}
	c.Handle(g)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected[g] = true
	if p.retiring {
		c.Drain()
	}
	p.running.Go(func() {
		<-c.Done()
		p.forget(g)
	})
}

// Serve implements call.Handler.
func (g *program) Serve(s call.ServerStream) error {
	if s.Head().Method != offer.Method {
		return g.calls.Serve(s)
	}
	request, err := s.Recv()
	if err != nil {
		return err
	}
	response, end, err := g.offer(s.Context(), s.Head(), request)
	if err != nil {
		return err
	}
	if err := s.SendHeader(end.Header); err != nil {
		return err
	}
	return s.Send(response)
}

// ServeUnary implements call.UnaryHandler.
func (g *program) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	if h.Method == offer.Method {
		return g.offer(ctx, h, request)
	}
	return g.calls.ServeUnary(ctx, h, request)
}

func (g *program) offer(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	defer request.Free()
	text, err := request.Bytes()
	if err != nil {
		return nil, call.End{}, err
	}
	var files descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(text, &files); err != nil {
		return nil, call.End{}, status.Errorf(codes.InvalidArgument, "offer: %v", err)
	}
	names := h.Metadata.Get(offer.ServiceKey)
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, call.End{}, status.Errorf(codes.InvalidArgument, "offer: name the services in %s", offer.ServiceKey)
	}
	ctx, cancel := context.WithTimeout(ctx, offerLimit)
	defer cancel()
	previous := strings.Join(h.Metadata.Get(offer.EndpointKey), "")
	id, err := g.plane.enter(ctx, g, previous, services.Endpoint{
		Services: names, Program: strings.Join(h.Metadata.Get(offer.ProgramKey), " "),
		PID: g.conn.Peer().PID, Started: time.Now().UTC(), Process: g.plane.opts.Process,
	}, &files)
	if err != nil {
		return nil, call.End{}, status.Errorf(codes.Unavailable, "offer: %v", err)
	}
	return &call.Message{Data: []byte{}}, call.End{Header: metadata.MD{offer.EndpointKey: {id}}}, nil
}

// enter makes a program an endpoint of its services, or the one that it was on
// another process.
func (p *Plane) enter(ctx context.Context, g *program, previous string, e services.Endpoint, files *descriptorpb.FileDescriptorSet) (string, error) {
	for _, name := range e.Services {
		if len(files.GetFile()) == 0 {
			break
		}
		// A service that can't be described is served all the same: only policies
		// on its fields and reflection miss it.
		if err := p.registry.Describe(ctx, name, files); err != nil {
			p.log.Warn("service without descriptors", "service", name, "error", err)
		}
	}
	g.offering.Lock()
	defer g.offering.Unlock()
	p.mu.Lock()
	e.ID = g.id
	p.mu.Unlock()
	e, err := p.offers.Offer(ctx, e, previous)
	if err != nil {
		return "", err
	}
	if !p.admit(g, e.ID) {
		return "", p.offers.Withdraw(ctx, e.ID)
	}
	p.follow()
	p.offers.Settled(e.ID)
	return e.ID, nil
}

// admit makes a program reachable by its endpoint's ID, unless it has gone.
func (p *Plane) admit(g *program, id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.gone {
		return false
	}
	g.id = id
	p.local[id] = g
	return true
}

// forget withdraws what a program offered.
func (p *Plane) forget(g *program) {
	p.mu.Lock()
	id := g.id
	g.gone = true
	delete(p.connected, g)
	if p.local[id] == g {
		delete(p.local, id)
	}
	p.mu.Unlock()
	if id == "" {
		return
	}
	p.follow()
	ctx, cancel := context.WithTimeout(p.life, offerLimit)
	defer cancel()
	if err := p.offers.Withdraw(ctx, id); err != nil && p.life.Err() == nil {
		p.log.Warn("an endpoint that is gone is still offered", "endpoint", id, "error", err)
	}
}
