package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard"
)

// actions are a function's response to an event.
type actions struct {
	Send  []sendAction `json:"send"`
	Join  []string     `json:"join"`
	Leave []string     `json:"leave"`
	Close bool         `json:"close"`
}

type sendAction struct {
	To   string  `json:"to"`
	Text *string `json:"text"`
	// Data is bytes in base64, for a binary message.
	Data []byte `json:"data"`
}

func (o *sendAction) message() outgoing {
	if o.Text == nil {
		return outgoing{data: o.Data, binary: true}
	}
	return outgoing{data: []byte(*o.Text)}
}

// apply carries out a function's response. It checks all of it first.
func (s *socket) apply(ctx context.Context, answer []byte) error {
	if len(answer) == 0 {
		return nil
	}
	o, err := parseActions(answer)
	if err != nil {
		return err
	}
	for _, name := range o.Leave {
		s.hub.leave(s, name)
	}
	for _, name := range o.Join {
		if !s.hub.join(s, name) && ctx.Err() == nil {
			return invalidActions("join %q: a connection is in at most %d rooms", name, maxRooms)
		}
	}
	err = s.sendAll(ctx, o.Send)
	if o.Close {
		s.end(errClosedByFunction)
	}
	return err
}

func parseActions(answer []byte) (o actions, err error) {
	if err := json.Unmarshal(answer, &o); err != nil {
		return o, invalidActions("want JSON like {\"send\": [{\"to\": \"self\", \"text\": \"hello\"}]}: %w", err)
	}
	err = o.validate()
	return o, err
}

func invalidActions(format string, args ...any) error {
	return outboard.Errorf(outboard.Protocol, "answer to an event", format, args...)
}

func (o *actions) validate() error {
	for _, name := range append(append([]string(nil), o.Join...), o.Leave...) {
		if name == "" || len(name) > maxRoomName {
			return invalidActions("room %q: want a name of 1 to %d bytes", clip([]byte(name)), maxRoomName)
		}
	}
	for _, order := range o.Send {
		if kind, name, _ := strings.Cut(order.To, ":"); order.To != "self" && (kind != "room" && kind != "id" || name == "" || len(name) > maxRoomName) {
			return invalidActions("send to %q: want room:NAME, id:ID or self", clip([]byte(order.To)))
		}
	}
	return nil
}

func (s *socket) sendAll(ctx context.Context, all []sendAction) error {
	var errs []error
	for i := range all {
		kind, name, _ := strings.Cut(all[i].To, ":")
		switch m := all[i].message(); kind {
		case "self":
			s.hub.deliverLocal(s.id, m)
		case "room":
			errs = append(errs, s.hub.toRoom(context.WithoutCancel(ctx), name, m))
		case "id":
			errs = append(errs, s.hub.toID(context.WithoutCancel(ctx), name, m))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &outboard.Error{Op: "send to other nodes", Kind: outboard.Unreachable, Err: fmt.Errorf("send: %w", err)}
	}
	return nil
}
