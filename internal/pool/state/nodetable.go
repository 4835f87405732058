package state

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

const (
	// maxNodeTable bounds the keys of the table that a node without a copy has written, in bytes: each
	// process that watches the table keeps all of it in memory.
	maxNodeTable = 64 << 20
	// keyCharge is the charge for a key beside its name and value, in bytes.
	keyCharge = 512
)

// nodeTables account for the keys of the table that nodes without a copy write, by the messages that
// pass this node's guards. A message is charged before it is stored, and replaced or removed keys are
// not credited: a node that has used three quarters of the limit is measured from time to time.
type nodeTables struct {
	limit int64
	log   *slog.Logger
	spawn func(func(context.Context)) // runs a measurement until the state ends
	// measure returns how many bytes the keys of a node have.
	measure func(ctx context.Context, node string) (int64, error)

	mu  sync.Mutex
	all map[string]*share // by node
}

func newNodeTables(s *State, spawn func(func(context.Context))) *nodeTables {
	return &nodeTables{limit: maxNodeTable, log: s.log, spawn: spawn, measure: measurer{s}.keysOf, all: make(map[string]*share)}
}

// reserve charges a write to a node, or refuses it. A write that removes a key is stored itself for a
// while: such writes may use as much again.
func (t *nodeTables) reserve(node string, size int64, removes bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.all[node]
	if one == nil {
		one = &share{}
		t.all[node] = one
	}
	limit := t.limit
	if removes {
		limit *= 2
	}
	refused := one.charged+size > limit
	if !refused {
		one.charged += size
	}
	if (refused || one.charged > t.limit/4*3) && !one.measuring && time.Since(one.measured) >= measurePause {
		one.measuring = true
		t.spawn(func(ctx context.Context) { t.remeasure(ctx, node, one) })
	}
	if refused {
		return outboard.Errorf(outboard.Exhausted, "the pool's state",
			"the entries of node %s have %v, which is all that they may have: remove apps, models or jobs that it has brought, or work on a node that keeps the pool's state",
			node, outboard.Bytes(t.limit))
	}
	return nil
}

// remeasure replaces the charge of a node by the measured size of its keys. Messages charged meanwhile
// may be counted twice until the next measurement.
func (t *nodeTables) remeasure(ctx context.Context, node string, one *share) {
	t.mu.Lock()
	before := one.charged
	t.mu.Unlock()
	total, err := t.measure(ctx, node)
	if err != nil && ctx.Err() == nil {
		t.log.Warn("the entries of a node can't be measured", "of", node, "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.measuring, one.measured = false, time.Now(); err == nil {
		one.charged += total - before
	}
}

// keysOf reads how many bytes the keys of the table that a node has written have. Each app and model
// is its last writer's.
func (s measurer) keysOf(ctx context.Context, node string) (total int64, err error) {
	owner := permissions{node: node}
	return s.sizeOf(ctx, streamName, keyPrefix+">", func(m *nats.Msg) int64 {
		key := strings.TrimPrefix(m.Header.Get(subjectHeader), keyPrefix)
		words := strings.Split(key, ".")
		owns := owner.ownsKey(words)
		switch words[0] {
		case "ticks":
			owns = false // The tenant is charged.
		case "apps", "models":
			var all versioned
			owns = json.Unmarshal(m.Data, &all) == nil && all.last().By == node
		}
		if owns {
			return keySize(key, m.Data)
		}
		return 0
	})
}

func keySize(key string, value []byte) int64 { return int64(len(key)+len(value)) + keyCharge }

// chargeNode charges a write of a node to the table. A message that removes a key has no value.
func (p permissions) chargeNode(words []string, m guard.Message) error {
	if p.tables == nil || p.keeper || p.tenant != "" {
		return nil
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	removes := err == nil && header.Get(opHeader) == opDelete && len(m.Body) == 0
	return p.tables.reserve(p.node, keySize(strings.Join(words, "."), m.Body), removes)
}
