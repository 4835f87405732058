package grpcconn

import (
	"time"

	"google.golang.org/grpc/keepalive"
)

// minPing is the shortest interval of the keepalive pings of clients, half of that of grpc-go's and
// grpc-java's: a ping after one that was late comes early.
const minPing = 5 * time.Second

// Keepalive returns the policy for the keepalive pings of clients, which may also be sent without a
// call. With grpc-go's default, 5 minutes, a server ends the connections of clients that are configured
// for the server behind this one.
func Keepalive() keepalive.EnforcementPolicy {
	return keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}
}
