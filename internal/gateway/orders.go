package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard"
)

// orders are what a function answers to an event.
type orders struct {
	Send  []order  `json:"send"`
	Join  []string `json:"join"`
	Leave []string `json:"leave"`
	Close bool     `json:"close"`
}

type order struct {
	To   string  `json:"to"`
	Text *string `json:"text"`
	// Data is bytes in base64, for a binary message.
	Data []byte `json:"data"`
}

func (o *order) message() outgoing {
	if o.Text == nil {
		return outgoing{data: o.Data, binary: true}
	}
	return outgoing{data: []byte(*o.Text)}
}

// obey does what the function answered. An answer is checked as a whole first.
func (s *socket) obey(ctx context.Context, answer []byte) error {
	if len(answer) == 0 {
		return nil
	}
	o, err := parseOrders(answer)
	if err != nil {
		return err
	}
	for _, name := range o.Leave {
		s.hub.leave(s, name)
	}
	for _, name := range o.Join {
		if !s.hub.join(s, name) && ctx.Err() == nil {
			return wrongOrders("join %q: a connection is in at most %d rooms", name, maxRooms)
		}
	}
	err = s.sendAll(ctx, o.Send)
	if o.Close {
		s.end(errAsked)
	}
	return err
}

func parseOrders(answer []byte) (o orders, err error) {
	if err := json.Unmarshal(answer, &o); err != nil {
		return o, wrongOrders("want JSON like {\"send\": [{\"to\": \"self\", \"text\": \"hello\"}]}: %w", err)
	}
	err = o.validate()
	return o, err
}

func wrongOrders(format string, args ...any) error {
	return outboard.Errorf(outboard.Protocol, "answer to an event", format, args...)
}

func (o *orders) validate() error {
	for _, name := range append(append([]string(nil), o.Join...), o.Leave...) {
		if name == "" || len(name) > maxRoomName {
			return wrongOrders("room %q: want a name of 1 to %d bytes", clip([]byte(name)), maxRoomName)
		}
	}
	for _, order := range o.Send {
		if kind, name, _ := strings.Cut(order.To, ":"); order.To != "self" && (kind != "room" && kind != "id" || name == "" || len(name) > maxRoomName) {
			return wrongOrders("send to %q: want room:NAME, id:ID or self", clip([]byte(order.To)))
		}
	}
	return nil
}

func (s *socket) sendAll(ctx context.Context, all []order) error {
	var errs []error
	for i := range all {
		kind, name, _ := strings.Cut(all[i].To, ":")
		switch m := all[i].message(); kind {
		case "self":
			s.hub.tellID(s.id, m)
		case "room":
			errs = append(errs, s.hub.toRoom(context.WithoutCancel(ctx), name, m))
		case "id":
			errs = append(errs, s.hub.toID(context.WithoutCancel(ctx), name, m))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &outboard.Error{Op: "tell other nodes", Kind: outboard.Unreachable, Err: fmt.Errorf("send: %w", err)}
	}
	return nil
}
