package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

const (
	batchIDHeader     = "Nats-Batch-Id"
	batchSeqHeader    = "Nats-Batch-Sequence"
	batchCommitHeader = "Nats-Batch-Commit"

	// codeWrongSequence and the codes below are error codes of the server, of which nats.go names
	// few.
	codeWrongSequence          = int(jetstream.JSErrCodeStreamWrongLastSequence)
	codeWrongSequenceInProcess = int(jetstream.JSErrCodeStreamWrongLastSequenceConstant)

	codeDuplicateInProcess = 10158
	codeBatchIncomplete    = 10176
	codeBatchDuplicate     = 10201
	codeBatchesInFlight    = 10210

	// codeDenied is the status with which this package answers, in place of the server, requests
	// that a client's permissions do not allow.
	codeDenied = 403
	// codeExhausted is the status of such an answer to a tenant that has no space left.
	codeExhausted = 507
	// codeUnavailable is the status of a server that cannot answer now: requests are repeated.
	codeUnavailable = 503

	// dedupeWindow is how long the server remembers a message's id. Attempts follow each other
	// faster.
	dedupeWindow = 30 * time.Second
)

// errInProcess says that an earlier attempt may still be in progress.
var errInProcess = errors.New("an earlier attempt is still in process")

// ack is the server's answer to a message that it has stored.
type ack struct {
	Seq       uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
	Error     *jetstream.APIError `json:"error"`
}

// publishOnce stores one message, in one attempt.
func (c *client) publishOnce(ctx context.Context, m *nats.Msg) (ack, error) {
	a, err := c.request(ctx, m)
	c.writes.record(err)
	return a, err
}

func (c *client) request(ctx context.Context, m *nats.Msg) (ack, error) {
	answer, err := c.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return ack{}, err
	}
	var a ack
	if err := json.Unmarshal(answer.Data, &a); err != nil {
		return ack{}, fmt.Errorf("the server's answer: %w", err)
	}
	if a.Error == nil {
		return a, nil
	}
	switch int(a.Error.ErrorCode) {
	case codeWrongSequence, codeBatchDuplicate:
		return ack{}, ErrConflict
	case codeWrongSequenceInProcess, codeDuplicateInProcess, codeBatchIncomplete, codeBatchesInFlight:
		return ack{}, fmt.Errorf("%w: %w", errInProcess, a.Error)
	}
	switch a.Error.Code {
	case codeDenied:
		return ack{}, outboard.Errorf(outboard.Denied, "", "%s", a.Error.Description)
	case codeExhausted:
		return ack{}, outboard.Errorf(outboard.Exhausted, "", "%s", a.Error.Description)
	}
	return ack{}, a.Error
}

// publishBatchOnce stores messages atomically, in one attempt. The answer is about the last
// message.
func (c *client) publishBatchOnce(ctx context.Context, id string, msgs []*nats.Msg) (ack, error) {
	last := len(msgs) - 1
	if last > 0 {
		for i, m := range msgs {
			m.Header[batchIDHeader] = []string{id}
			m.Header[batchSeqHeader] = []string{strconv.Itoa(i + 1)}
		}
		msgs[last].Header[batchCommitHeader] = []string{"1"}
	}
	for _, m := range msgs[:last] {
		if err := c.nc.PublishMsg(m); err != nil {
			return ack{}, err
		}
	}
	return c.publishOnce(ctx, msgs[last])
}
