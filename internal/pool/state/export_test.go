package state

import natsserver "github.com/nats-io/nats-server/v2/server"

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
