package state

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
)

// A Message is a message published on a subject.
type Message struct {
	Subject string
	Data    []byte
	// Respond answers a request. It is nil for messages that are not requests.
	Respond func([]byte) error
}

// Publish sends data to the current subscribers.
func (s *State) Publish(ctx context.Context, subject string, data []byte) error {
	if err := checkSubject(subject, false); err != nil {
		return err
	}
	err := s.retry(ctx, func(context.Context) error { return s.nc.Publish(subject, data) })
	if err != nil {
		return fmt.Errorf("publish on %s: %w", subject, err)
	}
	return nil
}

// Request sends a request to the subscribers and returns the first answer. It fails at once
// when there is no subscriber.
func (s *State) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if err := checkSubject(subject, false); err != nil {
		return nil, err
	}
	msg, err := s.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, unreachable("request on "+subject, err)
	}
	return msg.Data, nil
}

// Subscribe calls f with each message on the subject, from one goroutine. Each message reaches
// one of the subscribers of the same queue; an empty queue means none. unsubscribe returns
// when f has processed the messages that have arrived, after drainLimit at most, and is not
// running; f must not call it.
func (s *State) Subscribe(subject, queue string, f func(Message)) (unsubscribe func(), err error) {
	if err := checkSubject(subject, true); err != nil {
		return nil, err
	}
	if strings.ContainsAny(queue, " \t\r\n") {
		return nil, outboard.Errorf(outboard.Invalid, "subscribe to "+subject, "queue %q: it must have no spaces", queue)
	}
	sub, err := s.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) { f(messageOf(m)) })
	if err != nil {
		return nil, unreachable("subscribe to "+subject, err)
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	return func() { drain(sub, ended) }, nil
}

// Flush waits until the server has processed the subscriptions so far.
func (s *State) Flush(ctx context.Context) error {
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return unreachable("wait for the pool's state", err)
	}
	return nil
}

// drainLimit bounds how long unsubscribing waits for f to process the messages that have
// arrived.
const drainLimit = 10 * time.Second

// drain ends a subscription after the messages that have arrived were processed: no other
// subscriber would receive them. Its errors mean that the subscription, or its connection, has
// ended.
func drain(sub *nats.Subscription, ended <-chan struct{}) {
	if sub.Drain() == nil {
		timer := time.NewTimer(drainLimit)
		defer timer.Stop()
		select {
		case <-ended:
			return
		case <-timer.C:
		}
	}
	_ = sub.Unsubscribe()
	<-ended
}

func messageOf(m *nats.Msg) Message {
	out := Message{Subject: m.Subject, Data: m.Data}
	if m.Reply != "" {
		out.Respond = m.Respond
	}
	return out
}

// checkSubject refuses invalid subjects, and subjects reserved by the pool: its table holds
// secrets.
func checkSubject(subject string, wildcards bool) error {
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		switch {
		case token == "" || strings.ContainsAny(token, " \t\r\n\x00"):
			return invalidSubject(subject, "it has an empty part or a space")
		case (token == "*" || token == ">") && !wildcards:
			return invalidSubject(subject, "it must have no wildcards")
		case token == ">" && i != len(tokens)-1:
			return invalidSubject(subject, "\">\" must be its last part")
		case i == 0 && reserved(token):
			return invalidSubject(subject, "its first part belongs to the pool: begin with a word of your own")
		}
	}
	return nil
}

func reserved(first string) bool {
	return first == "*" || first == ">" || first == "outboard" || first[0] == '$' || first[0] == '_'
}

func invalidSubject(subject, reason string) error {
	return outboard.Errorf(outboard.Invalid, "check the subject", "%q: %s", subject, reason)
}
