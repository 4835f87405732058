package state

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// A versioned value is what package versions stores: each version names the node that wrote it.
type versioned struct {
	Versions []struct {
		By string `json:"by"`
	} `json:"versions"`
}

// owner returns the node that wrote the last version, "" for none.
func (v versioned) owner() string {
	if len(v.Versions) == 0 {
		return ""
	}
	return v.Versions[len(v.Versions)-1].By
}

// mayVersion decides whether a node that keeps no copy of the table may write a version: of
// something that is new, or whose last version it wrote itself. The write must name the
// revision that it replaces, which is the one that is looked at here.
func (l lender) mayVersion(p permissions, key string, m guard.Message) error {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return p.refuse("write without a revision", m.Subject)
	}
	replaces, err := strconv.ParseUint(header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if err != nil || header.Get(jetstream.ExpectedLastSubjSeqSubjHeader) != "" || header.Get(opHeader) != "" {
		return p.refuse("write without a revision", m.Subject)
	}
	var next versioned
	if json.Unmarshal(m.Body, &next) != nil || next.owner() != p.node && next.owner() != "" {
		return p.refuse("write in the name of another node", m.Subject)
	}
	owner, err := l.ownerAt(m.Subject, replaces)
	switch {
	case err != nil:
		return err
	case owner != "" && owner != p.node:
		return outboard.Errorf(outboard.Denied, "write "+key,
			"node %s wrote its last version: change it there, or on a node that keeps the pool's state", owner)
	}
	return nil
}

// ownerAt returns the owner of a value at a revision, 0 for none. Where the value has a later
// one it returns "": the server refuses a write that does not replace the last.
func (l lender) ownerAt(subject string, revision uint64) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	var found leaderMsg
	err := l.retry(ctx, func(ctx context.Context) (err error) {
		found, err = l.leaderGet(ctx, streamName, leaderQuery{LastBySubject: subject})
		return err
	})
	if errors.Is(err, ErrNotFound) {
		found, err = leaderMsg{}, nil
	}
	switch {
	case err == nil && found.Seq < revision:
		return "", outboard.Errorf(outboard.Denied, "the pool's state", "there is no revision %d yet", revision)
	case err == nil && (found.Seq > revision || len(found.Data) == 0):
		return "", nil
	}
	var now versioned
	if err == nil {
		err = json.Unmarshal(found.Data, &now)
	}
	return now.owner(), err
}
