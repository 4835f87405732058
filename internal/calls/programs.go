package calls

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// offerLimit is how long the pool's table may take to learn of an offer.
const offerLimit = 10 * time.Second

// A program is connected to the node.
type program struct {
	plane *Plane
	conn  *shared.Conn
	id    string // of its endpoint, "" while it offers nothing; under Plane.mu
}

func (p *Plane) servePrograms(ctx context.Context) {
	err := p.programs.Serve(ctx, func(c *shared.Conn) error {
		g := &program{plane: p, conn: c}
		c.Handle(g)
		p.running.Go(func() {
			<-c.Done()
			p.forget(g)
		})
		return nil
	})
	if err != nil {
		p.log.Error("programs are not served any more", "error", err)
	}
}

// Serve implements call.Handler.
func (g *program) Serve(s call.ServerStream) error {
	if s.Head().Method != fabric.OfferMethod {
		return g.plane.router.Serve(s)
	}
	request, err := s.Recv()
	if err != nil {
		return err
	}
	response, _, err := g.offer(s.Context(), s.Head(), request)
	if err != nil {
		return err
	}
	return s.Send(response)
}

// ServeUnary implements call.UnaryHandler.
func (g *program) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	if h.Method == fabric.OfferMethod {
		return g.offer(ctx, h, request)
	}
	return g.plane.router.ServeUnary(ctx, h, request)
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
	names := h.Metadata.Get(fabric.ServiceKey)
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, call.End{}, status.Errorf(codes.InvalidArgument, "offer: name the services in %s", fabric.ServiceKey)
	}
	ctx, cancel := context.WithTimeout(ctx, offerLimit)
	defer cancel()
	if err := g.plane.enter(ctx, g, names, strings.Join(h.Metadata.Get(fabric.ProgramKey), " "), &files); err != nil {
		return nil, call.End{}, status.Errorf(codes.Unavailable, "offer: %v", err)
	}
	return &call.Message{Data: []byte{}}, call.End{}, nil
}

// enter makes a program an endpoint of its services.
func (p *Plane) enter(ctx context.Context, g *program, names []string, title string, files *descriptorpb.FileDescriptorSet) error {
	for _, name := range names {
		if len(files.GetFile()) == 0 {
			break
		}
		// A service that can't be described is served all the same: only policies
		// on its fields and reflection miss it.
		if err := p.registry.Describe(ctx, name, files); err != nil {
			p.log.Warn("service without descriptors", "service", name, "error", err)
		}
	}
	id := p.admit(g)
	return p.registry.Offer(ctx, services.Endpoint{
		ID: id, Services: names, Program: title, PID: g.conn.Peer().PID, Started: time.Now().UTC(),
	})
}

// admit gives a program its endpoint's ID.
func (p *Plane) admit(g *program) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.id == "" {
		p.serial++
		g.id = fmt.Sprintf("%s/%d.%d", p.opts.Self, os.Getpid(), p.serial)
		p.local[g.id] = g
	}
	return g.id
}

// forget withdraws what a program offered.
func (p *Plane) forget(g *program) {
	p.mu.Lock()
	id := g.id
	delete(p.local, id)
	p.mu.Unlock()
	if id == "" {
		return
	}
	p.follow(time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), offerLimit)
	defer cancel()
	if err := p.registry.Withdraw(ctx, id); err != nil {
		p.log.Warn("an endpoint that is gone is still offered", "endpoint", id, "error", err)
	}
}
