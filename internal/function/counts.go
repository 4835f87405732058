package function

import (
	"errors"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/image"
)

// Counts are a function's totals since it was deployed.
type Counts struct {
	// Cloned and Reset count the calls that began in a new and in a reset instance.
	Cloned, Reset int64
	// Quiet are resets without a scan for written pages.
	Quiet int64
	// Rebuilt are slots that could not be reset.
	Rebuilt int64
	// Refused are calls beyond the queue.
	Refused int64
	// Failed are calls that ended with an error: Limited by a limit, Trapped, or Gone, because
	// the caller canceled, among them.
	Failed, Limited, Trapped, Gone int64
	// CopiedBack and Dropped are bytes of memory that resets restored and released.
	CopiedBack, Dropped int64
	// Pointer and Copied are bytes of requests, responses and imports: passed by their place in an
	// arena, and copied.
	Pointer, Copied int64
	// Maps are mappings that windows needed.
	Maps int64
	// Fuel is the fuel that all calls were charged.
	Fuel int64
	// Ran is how long all calls ran, in nanoseconds.
	Ran int64
}

// add counts a call.
func (c *Counts) add(cost Cost, reset image.Stats, maps int) {
	c.CopiedBack += int64(reset.Copied)
	c.Dropped += int64(reset.Dropped)
	if reset.Quiet {
		c.Quiet++
	}
	c.Pointer += cost.Pointer
	c.Copied += cost.Copied
	c.Maps += int64(maps)
	c.Fuel += cost.Fuel
	c.Ran += int64(cost.Ran)
}

// merge adds the counts of another function.
func (c *Counts) merge(o Counts) {
	c.Cloned += o.Cloned
	c.Reset += o.Reset
	c.Quiet += o.Quiet
	c.Rebuilt += o.Rebuilt
	c.Refused += o.Refused
	c.Failed += o.Failed
	c.Limited += o.Limited
	c.Trapped += o.Trapped
	c.Gone += o.Gone
	c.CopiedBack += o.CopiedBack
	c.Dropped += o.Dropped
	c.Pointer += o.Pointer
	c.Copied += o.Copied
	c.Maps += o.Maps
	c.Fuel += o.Fuel
	c.Ran += o.Ran
}

// end counts how a call ended.
func (c *Counts) end(err error) {
	if err == nil {
		return
	}
	c.Failed++
	_, limit := errors.AsType[*LimitError](err)
	_, failed := errors.AsType[*FailedError](err)
	_, left := errors.AsType[*exit](err)
	_, unfit := errors.AsType[*outboard.Error](err)
	switch {
	case limit:
		c.Limited++
	case errors.Is(err, errCanceled):
		c.Gone++
	case !failed && !left && !unfit:
		c.Trapped++
	}
}
