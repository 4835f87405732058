package transit

import (
	"errors"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

var errRead = errors.New("the leg was read")

// headless is a leg whose callee sent no header, and no message after those that were received.
type headless struct{ call.ClientStream }

func (headless) Header() (metadata.MD, error) { return nil, nil } //nolint:nilnil // no header is no error
func (headless) Recv() (*call.Message, error) { return nil, errRead }

// The header of a stream is known when a move has queued its first message: the callee may wait for
// the answer to that message before it sends the next.
func TestHeaderOfQueuedMessage(t *testing.T) {
	l := &leg{ClientStream: headless{}, empty: make(chan struct{})}
	c := &Caller{headerKnown: make(chan struct{}), first: l, legReader: newLegReader(l), unwatch: func() bool { return true }}
	c.enqueue(&call.Message{Data: []byte("first")})
	md, err := c.Header()
	if len(md) != 0 || err != nil || c.err != nil {
		t.Errorf("the header is %v, %v; the stream ended with %v", md, err, c.err)
	}
	if m, err := c.Recv(); err != nil || string(m.Data) != "first" {
		t.Errorf("the first message is %v, %v", m, err)
	}
}
