package overhead

import (
	"github.com/outboard-run/outboard/internal/cost"
)

// Sizes of the transport, in bytes.
const (
	// fluidSize is the size from which a message is forwarded before it has arrived as a whole.
	fluidSize = 512
	// framing is the overhead of a separate message on the wire: a TLS record and a frame.
	framing = 40
)

// links are the resources between programs and devices. Several programs may share them.
type links struct {
	e        *cost.Evaluator
	up, down cost.Resource
	// upBucket and downBucket are the token buckets before up and down; 0 if no link has a bucket.
	upBucket, downBucket cost.Resource
	// upWakes and downWakes delay a message after a pause of its direction.
	upWakes, downWakes wakes
	relay              cost.Time
	// perByte is one relay's processor time for a byte.
	perByte float64
	// client and device bound the work of all processors of the two machines; they are the same if
	// program and device share a machine.
	client, device *cost.Capacity
	// shared are the devices that several programs use, by their names; nil for one program alone.
	shared map[string]*sharedDevice
}

func newLinks(e *cost.Evaluator, l *lanes, s *settings) (*links, error) {
	k := &links{e: e, relay: cost.Of(s.Constants.Relay), perByte: float64(cost.Second) / s.Constants.RelayRate}
	if s.together {
		k.shared = map[string]*sharedDevice{}
	}
	var err error
	if k.up, err = e.Resource(l.up); err != nil {
		return nil, err
	}
	if k.down, err = e.Resource(l.down); err != nil {
		return nil, err
	}
	if l.bursts {
		if k.upBucket, err = e.Resource(l.upBucket); err != nil {
			return nil, err
		}
		if k.downBucket, err = e.Resource(l.downBucket); err != nil {
			return nil, err
		}
	}
	k.upWakes.latencies, k.downWakes.latencies = l.asleep, l.asleep
	k.client = e.Capacity(s.ClientCores, nil)
	k.device = k.client
	if !s.SameMachine {
		k.device = e.Capacity(s.DeviceCores, nil)
	}
	return k, nil
}

// flow is a message in transit: when its first and its last byte arrive.
type flow struct{ head, tail cost.Point }

// pass serves a message of the given size on a resource: a cost once, and its bytes at the
// resource's rate. A large message is passed on while it arrives.
func (m *model) pass(on cost.Resource, in flow, once cost.Time, bytes int64) flow {
	if in.head == in.tail && bytes < fluidSize {
		done := m.point()
		m.e.Add(cost.Task{On: on, After: [2]cost.Point{in.tail}, Cost: once, Units: bytes, Done: done})
		return flow{done, done}
	}
	head, tail := m.point(), m.point()
	m.e.Add(cost.Task{On: on, After: [2]cost.Point{in.head}, Cost: once, Done: head})
	m.e.Add(cost.Task{On: on, Units: bytes})
	m.e.Add(cost.Task{On: on, After: [2]cost.Point{in.tail}, Done: tail})
	return flow{head, tail}
}
