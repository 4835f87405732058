package state

import (
	"context"
	"errors"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	// majority is how many of three copies a change of the table needs.
	majority = Copies/2 + 1
	// transferTimeout bounds how long a server that stops waits until others lead its groups.
	transferTimeout = 5 * time.Second
	transferPause   = 10 * time.Millisecond
)

// errNoMajority ends requests of a node that stops.
var errNoMajority = errors.New("this node stops, and too few of the nodes that keep the pool's state are connected")

// checkMajority returns errNoMajority if the copies that this node reaches are no majority.
func (e *embedded) checkMajority(nc *nats.Conn) error {
	if e.reachesMajority(nc) {
		return nil
	}
	return errNoMajority
}

// reachesMajority reports whether requests of this node can reach a majority of the copies. A guest
// needs only the keeper to which it is connected.
func (e *embedded) reachesMajority(nc *nats.Conn) bool {
	switch e.role.get().Mode {
	case alone:
		return true
	case guest:
		return nc.IsConnected()
	case voter:
	}
	srv := e.current()
	return srv != nil && 1+len(routedServers(srv)) >= majority
}

// routedServers returns the names of the servers to which a server has routes.
func routedServers(srv *natsserver.Server) map[string]bool {
	names := make(map[string]bool)
	info, err := srv.Routez(&natsserver.RoutezOptions{})
	if err != nil {
		return names // The server stops.
	}
	for _, r := range info.Routes {
		names[r.RemoteName] = true
	}
	return names
}

// transferLeadership makes other servers lead the Raft groups that this server leads, and waits for
// their election: without it each group is without a leader for 4 to 9 s after the stop. It does
// nothing if the other servers are no majority without this one.
func (e *embedded) transferLeadership(srv *natsserver.Server, sys *nats.Conn) {
	if len(routedServers(srv)) < majority {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
	defer cancel()
	last, err := localCopies(srv)
	if err != nil {
		return
	}
	for stream := range last {
		if srv.JetStreamIsStreamLeader(natsserver.DEFAULT_GLOBAL_ACCOUNT, stream) {
			_ = srv.JetStreamStepdownStream(natsserver.DEFAULT_GLOBAL_ACCOUNT, stream)
		}
	}
	if srv.JetStreamIsLeader() {
		_, _ = sys.RequestWithContext(ctx, natsserver.JSApiLeaderStepDown, nil)
	}
	for !othersLead(srv) && sleep(ctx, transferPause) == nil {
	}
}

// othersLead reports whether each Raft group of a server has a leader elsewhere.
func othersLead(srv *natsserver.Server) bool {
	info, err := srv.Jsz(&natsserver.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return true // The server stops.
	}
	elsewhere := func(leader string) bool { return leader != "" && leader != srv.Name() }
	if info.Meta == nil || !elsewhere(info.Meta.Leader) {
		return false
	}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if stream.Cluster != nil && !elsewhere(stream.Cluster.Leader) {
				return false
			}
		}
	}
	return true
}
