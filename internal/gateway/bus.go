package gateway

import "context"

// A Bus carries messages between nodes: subjects, of which the parts are separated
// by dots.
type Bus interface {
	// Publish sends to whoever is subscribed.
	Publish(ctx context.Context, subject string, data []byte) error
	// Subscribe calls f with each message, one after another. Of those that name the
	// same queue one gets each message; without a queue all do. stop waits until f is
	// not running.
	Subscribe(subject, queue string, f func(Message)) (stop func(), err error)
}

// A Message came by the Bus.
type Message struct {
	Subject string
	Data    []byte
	// Respond answers who asked. It is nil where nobody did.
	Respond func([]byte) error
}

// A Once decides which one of many nodes does what all of them could.
type Once interface {
	// First says whether this is the first caller in the pool with this key.
	First(ctx context.Context, key string) (bool, error)
}
