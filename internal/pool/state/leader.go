package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

// leaderQuery asks a stream's leader for one message.
type leaderQuery struct {
	Seq           uint64 `json:"seq,omitempty"`
	LastBySubject string `json:"last_by_subj,omitempty"`
	NextBySubject string `json:"next_by_subj,omitempty"`
}

// leaderMsg is a leader's answer.
type leaderMsg struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// sequenceOf returns the message's sequence if the message has that id, and ErrConflict otherwise.
func (m leaderMsg) sequenceOf(id string) (uint64, error) {
	header, err := m.header()
	if err == nil && header.Get(jetstream.MsgIDHeader) != id {
		err = ErrConflict
	}
	return m.Seq, err
}

func (m leaderMsg) header() (nats.Header, error) {
	if len(m.Header) == 0 {
		return nil, nil
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return nil, fmt.Errorf("the header of message %d: %w", m.Seq, err)
	}
	return header, nil
}

func (m leaderMsg) stored() (stored, error) {
	header, err := m.header()
	return stored{subject: m.Subject, seq: m.Seq, time: m.Time, data: m.Data, deleted: deletion(header.Get), expires: expiry(header.Get)}, err
}

const leaderGetPrefix = "$JS.API.STREAM.MSG.GET."

// leaderGet reads one message from the stream's leader, which has every acknowledged message,
// in one attempt. It returns ErrNotFound when there is none.
func (c *client) leaderGet(ctx context.Context, stream string, q leaderQuery) (leaderMsg, error) {
	request, err := json.Marshal(q)
	if err != nil {
		return leaderMsg{}, err
	}
	answer, err := c.nc.RequestWithContext(ctx, leaderGetPrefix+stream, request)
	if err != nil {
		return leaderMsg{}, err
	}
	return decodeLeaderMsg(answer)
}

// leaderGetRange reads the existing messages with sequences from first to last, in order, in
// one attempt.
func (c *client) leaderGetRange(ctx context.Context, stream string, first, last uint64) ([]leaderMsg, error) {
	inbox := c.nc.NewInbox()
	answers, err := c.nc.SubscribeSync(inbox + ".*")
	if err != nil {
		return nil, err
	}
	// An error means that the connection has ended.
	defer func() { _ = answers.Unsubscribe() }()
	for seq := first; seq <= last; seq++ {
		text := strconv.FormatUint(seq, 10)
		if err := c.nc.PublishRequest(leaderGetPrefix+stream, inbox+"."+text, []byte(`{"seq":`+text+`}`)); err != nil {
			return nil, err
		}
	}
	var found []leaderMsg
	for range last - first + 1 {
		answer, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		m, err := decodeLeaderMsg(answer)
		switch {
		case err == nil:
			found = append(found, m)
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b leaderMsg) int { return cmp.Compare(a.Seq, b.Seq) })
	return found, nil
}

func decodeLeaderMsg(answer *nats.Msg) (leaderMsg, error) {
	if status := answer.Header.Get("Status"); status != "" {
		return leaderMsg{}, fmt.Errorf("status %s: %w", status, nats.ErrNoResponders)
	}
	var out struct {
		Error   *jetstream.APIError `json:"error"`
		Message leaderMsg           `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &out); err != nil {
		return leaderMsg{}, fmt.Errorf("the server's answer: %w", err)
	}
	switch {
	case out.Error == nil:
		return out.Message, nil
	case out.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return leaderMsg{}, ErrNotFound
	}
	return leaderMsg{}, out.Error
}

// lastSeq returns the last sequence that the stream's leader has assigned.
func (c *client) lastSeq(ctx context.Context, stream string) (last uint64, err error) {
	err = c.retry(ctx, func(ctx context.Context) error {
		info, err := c.js.Stream(ctx, stream)
		if err == nil {
			last = info.CachedInfo().State.LastSeq
		}
		return err
	})
	return last, err
}

// MoveLeader hands the leadership of the table to a node that keeps a copy. It returns nil when
// that node leads, and an error of kind Busy when the change has begun.
func (s *State) MoveLeader(ctx context.Context, to string) error {
	const op = "move the table's leader"
	stream, err := s.js.Stream(ctx, streamName)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if c := stream.CachedInfo().Cluster; c != nil && c.Leader == to {
		return nil
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	request := map[string]any{"placement": map[string]string{"preferred": to}}
	if err := s.api(ctx, "STREAM.LEADER.STEPDOWN."+streamName, request, &answer); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %w", op, answer.Error)
	}
	return outboard.Errorf(outboard.Busy, op, "node %s is about to lead", to)
}
