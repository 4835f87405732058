package oip

import (
	"context"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// A reservation is the memory that a request takes beside its body: copies of tensors in shared
// memory, and its outputs.
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
	if err := r.addResponse(ctx, n); err != nil {
		return err
	}
	r.size += n
	return nil
}

// freeResponse is how many bytes of a response are not counted at a time, since most are smaller.
const freeResponse = 16 << 10

// addOutputs reserves the memory of outputs.
func (r *reservation) addOutputs(ctx context.Context, outputs []model.Tensor) error {
	n := int64(0)
	for i := range outputs {
		n += int64(len(outputs[i].Data))
	}
	if n <= freeResponse {
		return nil
	}
	return r.addResponse(ctx, n)
}

// addResponse reserves n bytes of a response for the request's client.
func (r *reservation) addResponse(ctx context.Context, n int64) error {
	release, err := r.opts.Reserve(ctx, n)
	if err != nil {
		return err
	}
	r.releases = append(r.releases, release)
	return nil
}

// release ends the reservation.
func (r *reservation) release() {
	for _, release := range r.releases {
		release()
	}
}
