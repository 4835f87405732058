package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	batchIDHeader     = "Nats-Batch-Id"
	batchSeqHeader    = "Nats-Batch-Sequence"
	batchCommitHeader = "Nats-Batch-Commit"

	// Codes of the server's errors for which nats.go has no names.
	codeDuplicateInProcess = 10158
	codeBatchIncomplete    = 10176
	codeBatchDuplicate     = 10201
	codeBatchesInFlight    = 10210
)

// errInProcess says that an earlier attempt may still be under way.
var errInProcess = errors.New("an earlier attempt is still in process")

// publish stores messages, all or none, and returns the last one's sequence.
// It tries once.
func (s *State) publish(ctx context.Context, id string, msgs []*nats.Msg) (uint64, error) {
	last := len(msgs) - 1
	if last > 0 {
		for i, m := range msgs {
			m.Header.Set(batchIDHeader, id)
			m.Header.Set(batchSeqHeader, strconv.Itoa(i+1))
		}
		msgs[last].Header.Set(batchCommitHeader, "1")
	}
	for _, m := range msgs[:last] {
		if err := s.nc.PublishMsg(m); err != nil {
			return 0, err
		}
	}
	answer, err := s.nc.RequestMsgWithContext(ctx, msgs[last])
	if err != nil {
		return 0, err
	}
	return decodeAck(answer.Data)
}

func decodeAck(data []byte) (uint64, error) {
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, fmt.Errorf("the server's answer: %w", err)
	}
	if ack.Error == nil {
		return ack.Seq, nil
	}
	switch ack.Error.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, codeBatchDuplicate:
		return 0, ErrConflict
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant, codeDuplicateInProcess,
		codeBatchIncomplete, codeBatchesInFlight:
		return 0, fmt.Errorf("%w: %w", errInProcess, ack.Error)
	}
	return 0, ack.Error
}
