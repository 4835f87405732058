package state

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Watch calls f with every change of a key after a revision, in order, until ctx
// ends. It may coalesce changes of a key that follow each other closely.
func (k *KV) Watch(ctx context.Context, revision uint64, f func(Entry)) error {
	var consumer jetstream.Consumer
	err := k.s.retry(ctx, func(ctx context.Context) (err error) {
		consumer, err = k.s.js.OrderedConsumer(ctx, k.stream, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{k.keys + ">"},
			DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:    revision + 1,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.stream, err)
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if e, ok := k.watched(m); ok {
			f(e)
		}
	}, jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.stream, err)
	}
	select {
	case <-ctx.Done():
	case <-k.s.done:
	case <-consuming.Closed():
		return fmt.Errorf("watch %s: the connection has ended", k.stream)
	}
	consuming.Stop()
	<-consuming.Closed()
	return nil
}

func (k *KV) watched(m jetstream.Msg) (Entry, bool) {
	meta, err := m.Metadata()
	if err != nil {
		return Entry{}, false
	}
	key, ok := strings.CutPrefix(m.Subject(), k.keys)
	header := m.Headers().Get
	return Entry{
		Key: key, Value: m.Data(), Revision: meta.Sequence.Stream, Deleted: deletion(header), ExpiresMilli: expiry(header),
	}, ok
}
