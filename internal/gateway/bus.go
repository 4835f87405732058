package gateway

import "context"

// Bus carries messages between nodes by subjects, whose parts are separated by dots.
type Bus interface {
	// Publish sends to all subscribers.
	Publish(ctx context.Context, subject string, data []byte) error
	// Subscribe calls f with each message, one after another. Each message goes to one subscriber
	// of a queue; without a queue to all. stop waits until f has returned.
	Subscribe(subject, queue string, f func(Message)) (stop func(), err error)
	// Flush waits until the subscriptions so far get the messages that are published from then on.
	Flush(ctx context.Context) error
}

// Message is a message of the Bus.
type Message struct {
	Subject string
	Data    []byte
	// Respond replies to a request. It is nil for other messages.
	Respond func([]byte) error
}

// Once elects one of the nodes.
type Once interface {
	// First reports whether this is the first caller in the pool with the key.
	First(ctx context.Context, key string) (bool, error)
}
