package oip

import (
	"context"

	"github.com/outboard-run/outboard"
)

// A reservation is the memory that a request takes beside its body: copies of tensors in shared
// memory.
type reservation struct {
	opts     *Options
	size     int64
	releases []func()
}

// add reserves n bytes for the request's client.
func (r *reservation) add(ctx context.Context, n int64) error {
	if n > r.opts.MaxBody-r.size {
		return outboard.Errorf(outboard.Invalid, "", "the tensors in shared memory have more than %v", outboard.Bytes(r.opts.MaxBody))
	}
	release, err := r.opts.Reserve(ctx, n)
	if err != nil {
		return err
	}
	r.size += n
	r.releases = append(r.releases, release)
	return nil
}

// release ends the reservation.
func (r *reservation) release() {
	for _, release := range r.releases {
		release()
	}
}
