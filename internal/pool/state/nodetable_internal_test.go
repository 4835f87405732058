package state

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// TestTableOfANodeIsBounded: every node keeps the whole table in memory, so a node that was taken over
// may not fill it. What it removes or replaces is free again after a measurement; other nodes, and the
// processes of tenants, notice nothing.
func TestTableOfANodeIsBounded(t *testing.T) {
	kept := int64(0)
	var due []func(context.Context)
	tables := &nodeTables{
		limit: 64 << 10, log: slog.New(slog.DiscardHandler), all: make(map[string]*share),
		spawn:   func(f func(context.Context)) { due = append(due, f) },
		measure: func(context.Context, string) (int64, error) { return kept, nil },
	}
	write := func(node, key string, size int, header string) error {
		p := permissions{node: node, tables: tables}
		m := guard.Message{Subject: keyPrefix + key, Body: make([]byte, size)}
		if header != "" {
			m.Header = []byte("NATS/1.0\r\n" + header + "\r\n\r\n")
		}
		return p.Publish(m)
	}
	for size, most := range map[int]int{0: 128, 4 << 10: 16} {
		kept = 0
		n := 0
		for ; n <= most && write("dinghy", fmt.Sprint("services.dinghy.s", n), size, "") == nil; n++ {
		}
		if n > most || n < most/2 {
			t.Errorf("%d keys of %d bytes were stored", n, size)
		}
		if err := write("dinghy", "nodes.dinghy", 4<<10, ""); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("beyond the limit: %v", err)
		}
		if err := write("dinghy", "services.dinghy.s0", 0, "KV-Operation: DEL"); err != nil {
			t.Errorf("a key can't be removed: %v", err)
		}
		if err := write("dinghy", "services.dinghy.s0", 4<<10, "KV-Operation: DEL"); err == nil {
			t.Error("a removal with a value")
		}
		if err := write("harbour", "nodes.harbour", 100, ""); err != nil {
			t.Errorf("another node: %v", err)
		}
		if err := (permissions{node: "dinghy", tenant: "tea", tables: tables}).Publish(guard.Message{Subject: keyPrefix + "ticks.tea.1"}); err != nil {
			t.Errorf("a tenant's process: %v", err)
		}
		if len(due) != 1 {
			t.Fatalf("%d measurements are due", len(due))
		}
		due[0](t.Context())
		due = nil
		if err := write("dinghy", "nodes.dinghy", 100, ""); err != nil {
			t.Errorf("after a measurement: %v", err)
		}
		tables.all["dinghy"].measured = time.Time{}
		tables.all["dinghy"].charged = 0
	}
}
