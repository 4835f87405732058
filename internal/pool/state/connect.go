package state

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
)

// ConnectOptions says how to reach a table in an existing NATS cluster.
type ConnectOptions struct {
	// URL is one or more server URLs, separated by commas.
	URL string
	// Creds is a credentials file, "" for none.
	Creds string
	// TenantStore bounds the data of each tenant in the state; 0: the default of package quota.
	TenantStore outboard.Bytes
	Logger      *slog.Logger
	// Member returns the reason why the pool does not admit this node any more, or nil. A cluster
	// does not know the nodes that the pool removed: without Member they change its table. It may be
	// called at any time, and may be nil.
	Member func() error
}

// Connect opens the table in an existing NATS cluster, and creates it if it does not exist: with
// three copies if the cluster has servers for them, with one until then.
func Connect(ctx context.Context, opts ConnectOptions) (*State, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &State{table: newTable(opts.Logger, ""), done: make(chan struct{})}
	s.member, s.stores = opts.Member, newStores(s, opts.TenantStore)
	// The cluster answers no request that the user may not make: without the refusal, which it
	// sends apart, requests would be repeated without end.
	opening, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	extra := []nats.Option{nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		opts.Logger.Warn("the NATS cluster reports an error", "error", err)
		if errors.Is(err, nats.ErrPermissionViolation) {
			refuse(err)
		}
	})}
	if opts.Creds != "" {
		extra = append(extra, nats.UserCredentials(opts.Creds))
	}
	if err := s.connectTo(opts.URL, extra...); err != nil {
		kind := outboard.KindOf(err)
		if strings.Contains(strings.ToLower(err.Error()), nats.AUTHORIZATION_ERR) {
			kind = outboard.Denied
		}
		return nil, outboard.Errorf(kind, "", "%w: see the flags --nats and --creds", err)
	}
	if err := openExternal(opening, s); err != nil {
		if cause := context.Cause(opening); ctx.Err() == nil && errors.Is(cause, nats.ErrPermissionViolation) {
			err = outboard.Errorf(outboard.Denied, "open the table in the NATS cluster",
				"%w: the user needs the permission to use JetStream", cause)
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
