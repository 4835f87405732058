package gateway_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/gateway"
)

// memoryBus is a Bus within a process. A message is delivered before Publish returns.
type memoryBus struct {
	mu   sync.Mutex
	subs []*subscription
	turn int
	fail bool
	// Only these subscriptions get messages if the bus is slow: the number at the last Flush.
	slow    bool
	flushed int
}

type subscription struct {
	subject, queue string
	mu             sync.Mutex
	stopped        atomic.Bool
	f              func(gateway.Message)
}

func (b *memoryBus) Subscribe(subject, queue string, f func(gateway.Message)) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail {
		return nil, errors.New("no bus")
	}
	s := &subscription{subject: subject, queue: queue, f: f}
	b.subs = append(b.subs, s)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped.Store(true)
	}, nil
}

func (b *memoryBus) Flush(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushed = len(b.subs)
	return nil
}

func (b *memoryBus) Publish(_ context.Context, subject string, data []byte) error {
	if len(data) > 1<<20 {
		return errors.New("maximum payload exceeded") // as a server of NATS
	}
	b.send(gateway.Message{Subject: subject, Data: data})
	return nil
}

// send delivers to all subscribers without a queue group and to one of each group.
func (b *memoryBus) send(m gateway.Message) (heard int) {
	for _, s := range b.choose(m.Subject) {
		s.mu.Lock()
		if !s.stopped.Load() {
			heard++
			s.f(m)
		}
		s.mu.Unlock()
	}
	return heard
}

func (b *memoryBus) choose(subject string) (chosen []*subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	queues := map[string][]*subscription{}
	for i, s := range b.subs {
		switch {
		case b.slow && i >= b.flushed:
		case s.stopped.Load() || !matches(s.subject, subject):
		case s.queue == "":
			chosen = append(chosen, s)
		default:
			queues[s.queue] = append(queues[s.queue], s)
		}
	}
	b.turn++
	for _, members := range queues {
		chosen = append(chosen, members[b.turn%len(members)])
	}
	return chosen
}

func matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i := range p {
		if p[i] == ">" {
			return len(s) > i
		}
		if i >= len(s) || p[i] != "*" && p[i] != s[i] {
			return false
		}
	}
	return len(p) == len(s)
}

// open is how many subscriptions there are.
func (b *memoryBus) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.subs {
		s.mu.Lock()
		if !s.stopped.Load() {
			n++
		}
		s.mu.Unlock()
	}
	return n
}

// memoryOnce is a Once within a process.
type memoryOnce struct {
	mu   sync.Mutex
	keys map[string]bool
	fail bool
}

func (o *memoryOnce) First(_ context.Context, key string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail {
		return false, errors.New("the pool is away")
	}
	if o.keys == nil {
		o.keys = map[string]bool{}
	}
	first := !o.keys[key]
	o.keys[key] = true
	return first, nil
}
