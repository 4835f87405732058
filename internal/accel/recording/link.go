package recording

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// linkReader finds what a link's worker has recorded of the messages.
type linkReader struct{}

func newLinkReader(*stream, *trace.Device) (*linkReader, error) { return &linkReader{}, nil }

func (p *joiner) joinRemote(*function, *rawCall, *trace.Record) error { return nil }
