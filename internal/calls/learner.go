package calls

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// learner fetches the descriptors of the gRPC servers that were added to this node, by server
// reflection, and stores them as programs store theirs. Without them policies can't read requests,
// and calls by plain gRPC count as streams.
type learner struct {
	registry  *services.Registry
	self      outboard.NodeID
	transport func(endpoint string) call.Transport
	life      *lifetime
	log       *slog.Logger
	following map[string]context.CancelFunc // by endpoint and services; used by sync alone
}

func newLearner(opts Options, life *lifetime, t *transports) *learner {
	return &learner{
		registry: opts.Registry, self: opts.Self, transport: t.local, life: life, log: opts.Logger,
		following: map[string]context.CancelFunc{},
	}
}

// sync follows the servers that are added, and no others. One goroutine at a time may call it.
func (l *learner) sync() {
	added := map[string]services.Endpoint{}
	for _, e := range l.registry.Endpoints() {
		if e.Node == l.self && e.Address != "" {
			added[e.ID+" "+strings.Join(e.Services, " ")] = e
		}
	}
	for key, stop := range l.following {
		if _, ok := added[key]; !ok {
			stop()
			delete(l.following, key)
		}
	}
	for key, e := range added {
		if l.following[key] == nil {
			ctx, stop := context.WithCancel(l.life.ctx)
			l.following[key] = stop
			l.life.Go(func() { l.refreshDescriptors(ctx, e) })
		}
	}
}

const (
	// relearnAfter is the time after which a server is asked again: it may have been replaced by
	// another version.
	relearnAfter = time.Minute
	// minLearnPause and relearnAfter bound the pause after a failure.
	minLearnPause = time.Second
	// learnLimit bounds one attempt.
	learnLimit = 20 * time.Second
)

// refreshDescriptors learns a server's descriptors, and their changes, until ctx ends.
func (l *learner) refreshDescriptors(ctx context.Context, e services.Endpoint) {
	reported := false
	for pause := minLearnPause; ; pause = min(2*pause, relearnAfter) {
		err := l.learn(ctx, e)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause, reported = relearnAfter, false
		case !reported && status.Code(err) != codes.Unavailable:
			reported = true
			l.log.Info("a gRPC server does not tell its descriptors: policies can't read its requests, and neither hedge nor mirror calls by plain gRPC",
				"address", e.Address, "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// learn fetches and stores the descriptors of a server's services. Services that programs of this
// node serve too are described by these.
func (l *learner) learn(ctx context.Context, e services.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, learnLimit)
	defer cancel()
	t := l.transport(e.ID)
	if t == nil {
		return status.Error(codes.Unavailable, "the server is not reached")
	}
	learned, err := plain.Learn(ctx, t)
	if err != nil {
		return err
	}
	var failed error
	for _, name := range e.Services {
		files, err := learned.FilesOf(name)
		if err == nil && !l.hasProgram(name) {
			err = l.registry.Describe(ctx, name, files)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// hasProgram reports whether a program of this node serves a service.
func (l *learner) hasProgram(service string) bool {
	return slices.ContainsFunc(l.registry.Endpoints(), func(e services.Endpoint) bool {
		return e.Node == l.self && e.Address == "" && slices.Contains(e.Services, service)
	})
}
