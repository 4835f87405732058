package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

const (
	pageSize  = 1000
	pageBytes = 8 << 20
)

// pages calls apply with the messages of a stream, in order, from any copy of it. apply
// returns the sequence of the message.
func (c *client) pages(ctx context.Context, get, filter string, apply func(*nats.Msg) (uint64, error)) error {
	after := uint64(0)
	for more := true; more; {
		var page []*nats.Msg
		err := c.retry(ctx, func(ctx context.Context) (err error) {
			page, more, err = c.page(ctx, get, filter, after+1)
			return err
		})
		if err != nil {
			return err
		}
		for _, m := range page {
			if after, err = apply(m); err != nil {
				return err
			}
		}
		more = more && len(page) > 0
	}
	return nil
}

// page reads a batch of messages from sequence first on.
func (c *client) page(ctx context.Context, get, filter string, first uint64) (page []*nats.Msg, more bool, err error) {
	request, err := json.Marshal(map[string]any{
		"seq": first, "batch": pageSize, "max_bytes": pageBytes, "next_by_subj": filter,
	})
	if err != nil {
		return nil, false, err
	}
	inbox := c.nc.NewInbox()
	// The connection's own channel would have room for 65,536 messages.
	answers := make(chan *nats.Msg, pageSize+1)
	sub, err := c.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, sub.Unsubscribe()) }()
	if err := c.nc.PublishRequest(get, inbox, request); err != nil {
		return nil, false, err
	}
	for {
		var msg *nats.Msg
		select {
		case msg = <-answers:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
			page = append(page, msg)
		case "204": // the end of the batch
			pending, err := strconv.ParseUint(msg.Header.Get("Nats-Num-Pending"), 10, 64)
			return page, pending > 0, err
		case "404":
			return nil, false, nil
		default:
			return nil, false, fmt.Errorf("status %s: %w", status, nats.ErrNoResponders)
		}
	}
}
