package state

import (
	"crypto/tls"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/outboard-run/outboard"
)

// LocalLeader returns which server leads the table, as this node's own server knows it.
func LocalLeader(s *State) string {
	info, err := s.server.current().Jsz(&natsserver.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return ""
	}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if stream.Name == streamName {
				return stream.Cluster.Leader
			}
		}
	}
	return ""
}

// noRoutes is the configuration of routes of a pool without any.
func noRoutes(func(outboard.NodeID) bool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13}
}

// NoRoutes is noRoutes, for tests in another package.
var NoRoutes = noRoutes

// LocalStreams returns the streams of which a node's own server keeps a copy, and whether all of
// them are up to date.
func LocalStreams(s *State) (names []string, current bool) {
	srv := s.server.current()
	last, err := localCopies(srv)
	if err != nil {
		return nil, false
	}
	current = true
	for name := range last {
		names = append(names, name)
		current = current && srv.JetStreamIsStreamCurrent(natsserver.DEFAULT_GLOBAL_ACCOUNT, name)
	}
	return names, current
}
