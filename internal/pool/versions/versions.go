// Package versions keeps the versions of an object, such as an app, in one value of the pool's
// table: the last version is in force, and a roll-back brings an earlier one back. Concurrent
// writers are ordered: the later one sees the version of the earlier one.
package versions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// A Version is a type of versions: a pointer to V with these methods.
type Version[V any] interface {
	*V
	// Numbers returns the version's number, and that of the version that it brought back, 0 for
	// none.
	Numbers() (own, of int)
	// Stamp sets the version's number, its time and its node.
	Stamp(number int, at time.Time, by outboard.NodeID)
	// Size returns about how many bytes of the value the version takes.
	Size() int
}

// A History is the versions that are kept, oldest first. The last is in force; there
// may be none.
type History[V any, P Version[V]] struct {
	Versions []V `json:"versions"`
	// Last is the number of the last version if the versions were removed.
	Last int `json:"last,omitempty"`
	// Revision is the revision of the value.
	Revision uint64 `json:"-"`
}

// Current returns the version in force, nil for none.
func (h History[V, P]) Current() *V {
	if len(h.Versions) == 0 {
		return nil
	}
	return &h.Versions[len(h.Versions)-1]
}

// Previous returns the version that a roll-back brings back: the one that was in force before the
// content that is in force, so that a second roll-back goes further back. A version that was rolled
// back does not come back: after 1, 2, 3 (as 1) and 4 the previous version is 1.
func (h History[V, P]) Previous() (V, bool) {
	var line []*V // contents that led to the one in force; their original numbers ascend
	for i := range h.Versions {
		v := &h.Versions[i]
		for len(line) > 0 && original[V, P](line[len(line)-1]) > original[V, P](v) {
			line = line[:len(line)-1]
		}
		if len(line) == 0 || original[V, P](line[len(line)-1]) < original[V, P](v) {
			line = append(line, v)
		}
	}
	if len(line) < 2 {
		var none V
		return none, false
	}
	return *line[len(line)-2], true
}

// original returns the number with which the content of a version was written first.
func original[V any, P Version[V]](v *V) int {
	own, of := P(v).Numbers()
	return cmp.Or(of, own)
}

// Newest returns the number of the newest version, which may have been removed; 0 if there was none.
func (h History[V, P]) Newest() int {
	if now := h.Current(); now != nil {
		number, _ := P(now).Numbers()
		return number
	}
	return h.Last
}

// Decode decodes the history that an entry of the table holds.
func Decode[V any, P Version[V]](e state.Entry) (History[V, P], error) {
	var h History[V, P]
	if e.Deleted {
		return History[V, P]{Revision: e.Revision}, nil
	}
	err := state.DecodeJSON(e.Value, &h)
	h.Revision = e.Revision
	return h, err
}

// outageLimit is how long a change waits for a state that does not answer. An election of the state
// takes some seconds.
const outageLimit = 30 * time.Second

// A Keeper writes one history.
type Keeper[V any, P Version[V]] struct {
	State *state.State
	Key   string
	Self  outboard.NodeID
	// Versions is the number of versions to keep, if Bytes have room for them; the last one is
	// always kept.
	Versions, Bytes int
}

// Push appends the version that next returns for the history. After a conflict with another writer
// it calls next again. Its errors begin with op.
func (k Keeper[V, P]) Push(ctx context.Context, op string, next func(History[V, P]) (V, error)) (V, error) {
	var none V
	ctx, end := k.State.WhileAnswered(ctx, outageLimit)
	defer end()
	for {
		h, err := k.read(ctx)
		if err != nil {
			return none, fmt.Errorf("%s: %w", op, err)
		}
		v, err := next(h)
		if err != nil {
			return none, err
		}
		P(&v).Stamp(h.Newest()+1, time.Now().UTC(), k.Self)
		h.Versions = k.newest(append(slices.Clone(h.Versions), v))
		if err = k.write(ctx, h); err == nil {
			return v, nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return none, fmt.Errorf("%s: %w", op, err)
		}
	}
}

// Remove removes the versions, and keeps the number of the last one: a reference to a removed
// version never means a later one. next may refuse the removal.
func (k Keeper[V, P]) Remove(ctx context.Context, op string, next func(History[V, P]) error) error {
	ctx, end := k.State.WhileAnswered(ctx, outageLimit)
	defer end()
	for {
		h, err := k.read(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		if err := next(h); err != nil {
			return err
		}
		err = k.write(ctx, History[V, P]{Versions: []V{}, Last: h.Newest(), Revision: h.Revision})
		if err == nil {
			return nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
}

// newest returns the newest versions that fit, the last one always.
func (k Keeper[V, P]) newest(all []V) []V {
	available := k.Bytes
	for i := range slices.Backward(all) {
		available -= P(&all[i]).Size()
		if i < len(all)-1 && (available < 0 || len(all)-i > k.Versions) {
			return all[i+1:]
		}
	}
	return all
}

func (k Keeper[V, P]) read(ctx context.Context) (History[V, P], error) {
	e, err := k.State.Get(ctx, k.Key)
	if errors.Is(err, state.ErrNotFound) {
		return History[V, P]{Revision: e.Revision}, nil
	}
	if err != nil {
		return History[V, P]{}, err
	}
	return Decode[V, P](e)
}

func (k Keeper[V, P]) write(ctx context.Context, h History[V, P]) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = k.State.Update(ctx, k.Key, text, h.Revision, 0)
	return err
}
