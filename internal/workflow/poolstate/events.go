// Package poolstate keeps a workflow engine's claims and events in the pool's state.
package poolstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// EventRetention is how long an event is kept for listeners that subscribe later.
const EventRetention = 24 * time.Hour

// Events implements engine.Events. An event is appended to a log, for listeners that subscribe
// later, and published on a subject, for current listeners.
type Events struct {
	Tenant string
	State  *state.State
	Log    *state.Log // with the retention EventRetention
}

var _ engine.Events = Events{}

func (e Events) subject(app string) string { return "events." + e.Tenant + "." + app }

func (e Events) prefix(app string) string { return e.Tenant + "/" + app + "/" }

// Publish implements engine.Events.
func (e Events) Publish(ctx context.Context, app string, event core.CloudEvent) error {
	text, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("publish an event: %w", err)
	}
	_, err = e.Log.Append(ctx, e.prefix(app)+eventKey(event), 0, text)
	if err != nil && !errors.Is(err, state.ErrConflict) { // it was published before
		return err
	}
	return e.State.Publish(ctx, e.subject(app), text)
}

// eventKey identifies an event by its source and its id (CloudEvents, section 3.1.1).
func eventKey(event core.CloudEvent) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", event["source"], event["id"]))
	return hex.EncodeToString(sum[:16])
}

// Subscribe implements engine.Events. Events of the log are delivered in the order in which they were
// published, and before those that arrive meanwhile.
func (e Events) Subscribe(ctx context.Context, app string, since time.Time, f func(core.CloudEvent)) (func(), error) {
	l := &listener{deliver: f, seen: map[string]bool{}}
	stop, err := e.State.Subscribe(e.subject(app), "", func(m state.Message) { l.receive(m.Data) })
	if err != nil {
		return nil, err
	}
	if err := e.replay(ctx, app, since, l); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// replay delivers the events of the log that are not older than since. It reads a thousand at a time,
// and one by one only those that the copy of the log that it has read does not have yet.
func (e Events) replay(ctx context.Context, app string, since time.Time, l *listener) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	read := map[string]bool{}
	deliver := func(records []state.Record) error {
		for _, r := range records {
			if read[r.Key] = true; !r.Time.Before(since) {
				l.deliverOnce(r.Data)
			}
		}
		return nil
	}
	if err := e.Log.Scan(ctx, e.prefix(app), deliver); err != nil {
		return err
	}
	keys, err := e.Log.Keys(ctx, e.prefix(app))
	for _, key := range keys {
		if read[key] {
			continue
		}
		var records []state.Record
		if records, err = e.Log.Read(ctx, key); err != nil {
			return err
		}
		_ = deliver(records) // it has no error
	}
	return err
}

// listener delivers each event once, though the log and the subject both have it.
type listener struct {
	mu      sync.Mutex
	deliver func(core.CloudEvent)
	seen    map[string]bool
}

func (l *listener) receive(text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliverOnce(text)
}

// deliverOnce delivers an event. The caller holds the lock.
func (l *listener) deliverOnce(text []byte) {
	var event core.CloudEvent
	if json.Unmarshal(text, &event) != nil {
		return // not an event
	}
	key := eventKey(event)
	if l.seen[key] {
		return
	}
	l.seen[key] = true
	l.deliver(event)
}
