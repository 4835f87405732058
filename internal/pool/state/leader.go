package state

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// ours returns its sequence when it has that id, and ErrConflict otherwise.
func (m leaderMsg) ours(id string) (uint64, error) {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return 0, fmt.Errorf("the header of message %d: %w", m.Seq, err)
	}
	if header.Get(jetstream.MsgIDHeader) != id {
		return 0, ErrConflict
	}
	return m.Seq, nil
}

// leaderGet reads one message from the stream's leader, which knows all that
// was acknowledged, once. It returns ErrNotFound when there is none.
func (s *State) leaderGet(ctx context.Context, stream string, q leaderQuery) (leaderMsg, error) {
	request, err := json.Marshal(q)
	if err != nil {
		return leaderMsg{}, err
	}
	answer, err := s.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return leaderMsg{}, err
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

// lastSeq is the last sequence that the stream's leader has given out.
func (s *State) lastSeq(ctx context.Context, stream string) (last uint64, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		info, err := s.js.Stream(ctx, stream)
		if err == nil {
			last = info.CachedInfo().State.LastSeq
		}
		return err
	})
	return last, err
}
