// Package poolbus connects a gateway to the subjects and the table of the pool's state.
package poolbus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// Bus implements gateway.Bus by the pool's subjects.
type Bus struct{ *state.State }

var _ gateway.Bus = Bus{}

// Subscribe implements gateway.Bus.
func (b Bus) Subscribe(subject, queue string, f func(gateway.Message)) (func(), error) {
	return b.State.Subscribe(subject, queue, func(m state.Message) { f(gateway.Message(m)) })
}

// Ticks implements gateway.Once by the pool's table: the node that creates the key of a tick fires
// the schedule.
type Ticks struct {
	State  *state.State
	Tenant string
	Node   outboard.NodeID
}

var _ gateway.Once = Ticks{}

// tickTTL is how long the table keeps a tick after it was due.
const tickTTL = time.Hour

// First implements gateway.Once.
func (t Ticks) First(ctx context.Context, key string) (bool, error) {
	sum := sha256.Sum256([]byte(key))
	name := "ticks/" + t.Tenant + "/" + hex.EncodeToString(sum[:16])
	_, err := t.State.Create(ctx, name, []byte(t.Node), tickTTL)
	if errors.Is(err, state.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}
