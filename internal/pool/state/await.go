package state

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// quietWait is how long a start may wait for the table before the log says for what.
	quietWait = 5 * time.Second
	// waitReport is how often the log repeats it.
	waitReport = time.Minute
)

// awaitTable waits until the table can be read. A wait that takes longer than a start of all nodes
// together is logged, since nothing else says why the node is not up.
func awaitTable(ctx context.Context, s *State) error {
	ctx, cancel := context.WithCancel(ctx)
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		s.server.reportWait(ctx)
	}()
	err := s.waitTable(ctx)
	cancel()
	<-reported
	return err
}

// reportWait logs for which nodes this one waits, until ctx ends.
func (e *embedded) reportWait(ctx context.Context) {
	for pause := quietWait; sleep(ctx, pause) == nil; pause = waitReport {
		e.logWait()
	}
}

func (e *embedded) logWait() {
	const remedy = "start them; if the addresses of all of them have changed, name a new one with `outboard up --join HOST:PORT`"
	d := e.role.get()
	if srv := e.current(); d.Mode == voter && srv != nil {
		e.log.Warn("this node waits for another one that keeps the pool's state",
			"addresses", strings.Join(e.knownRoutes(d), " "), "connected", strings.Join(slices.Sorted(maps.Keys(routedServers(srv))), " "), "remedy", remedy)
		return
	}
	reason := "none has been dialled yet"
	if last := e.undialled.Load(); last != nil && *last != nil {
		reason = strings.ReplaceAll((*last).Error(), "\n", "; ")
	}
	e.log.Warn("this node waits for a node that keeps the pool's state",
		"addresses", strings.Join(d.Peers, " "), "reason", reason, "remedy", remedy)
}
