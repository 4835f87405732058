package launch

import (
	"context"

	"github.com/outboard-run/outboard/internal/freeport"
)

// StorePort returns a TCP port for the store in which torch.distributed's ranks find each other
// (MASTER_PORT): rank 0 listens on it.
func StorePort(ctx context.Context) (int, error) { return freeport.Choose(ctx) }
