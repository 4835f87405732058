package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
)

// bus is the pool's subjects as the gateway knows them.
type bus struct{ *state.State }

// Subscribe implements gateway.Bus.
func (b bus) Subscribe(subject, queue string, f func(gateway.Message)) (func(), error) {
	return b.State.Subscribe(subject, queue, func(m state.Message) { f(gateway.Message(m)) })
}

// ticks lets one node of the pool do what falls due on all of them.
type ticks struct{ t *Tenant }

// tickTTL is how long after it fell due a tick is remembered.
const tickTTL = time.Hour

// First implements gateway.Once.
func (k ticks) First(ctx context.Context, key string) (bool, error) {
	sum := sha256.Sum256([]byte(key))
	name := "ticks/" + k.t.config.Tenant + "/" + hex.EncodeToString(sum[:16])
	_, err := k.t.state.Create(ctx, name, []byte(k.t.config.Node), tickTTL)
	if errors.Is(err, state.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// events carries the events of workflows: it implements engine.Events. They are kept
// in a log for those who begin to listen later, and told on a subject to those who
// listen now.
type events struct {
	t   *Tenant
	log *state.Log
}

// keepEvents is how long an event waits for who begins to listen.
const keepEvents = 24 * time.Hour

func (e events) subject(app string) string { return "events." + e.t.config.Tenant + "." + app }

func (e events) prefix(app string) string { return e.t.config.Tenant + "/" + app + "/" }

// Publish implements engine.Events.
func (e events) Publish(ctx context.Context, app string, event core.CloudEvent) error {
	text, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("publish an event: %w", err)
	}
	_, err = e.log.Append(ctx, e.prefix(app)+eventKey(event), 0, text)
	if err != nil && !errors.Is(err, state.ErrConflict) { // it was published before
		return err
	}
	return e.t.state.Publish(ctx, e.subject(app), text)
}

// eventKey names an event by what makes it one: its source and its id.
func eventKey(event core.CloudEvent) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", event["source"], event["id"]))
	return hex.EncodeToString(sum[:16])
}

// Subscribe implements engine.Events.
func (e events) Subscribe(ctx context.Context, app string, since time.Time, f func(core.CloudEvent)) (func(), error) {
	l := &listener{tell: f, seen: map[string]bool{}}
	stop, err := e.t.state.Subscribe(e.subject(app), "", func(m state.Message) { l.hear(m.Data) })
	if err != nil {
		return nil, err
	}
	if err := e.before(ctx, app, since, l); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// before tells a listener of the events that are kept.
func (e events) before(ctx context.Context, app string, since time.Time, l *listener) error {
	keys, err := e.log.Keys(ctx, e.prefix(app))
	if err != nil {
		return err
	}
	for _, key := range keys {
		records, err := e.log.Read(ctx, key)
		if err != nil {
			return err
		}
		for _, r := range records {
			if !r.Time.Before(since) {
				l.hear(r.Data)
			}
		}
	}
	return nil
}

// A listener hears each event once.
type listener struct {
	mu   sync.Mutex
	tell func(core.CloudEvent)
	seen map[string]bool
}

func (l *listener) hear(text []byte) {
	var event core.CloudEvent
	if json.Unmarshal(text, &event) != nil {
		return // it is nobody's event
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := eventKey(event)
	if l.seen[key] {
		return
	}
	l.seen[key] = true
	l.tell(event)
}
