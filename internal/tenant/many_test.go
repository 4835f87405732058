package tenant

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
)

// open writes executions into the log as a node that has begun a step of each.
func (b *bench) open(n int) {
	b.t.Helper()
	b.tenant.members.Set([]outboard.Node{{ID: "harbour", Boot: "1"}, {ID: "dinghy", Boot: "1"}})
	log, err := b.tenant.state.OpenLog(b.t.Context(), "executions", state.LogOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	var writing sync.WaitGroup
	for w := range 16 {
		writing.Go(func() {
			for i := w; i < n; i += 16 {
				var records [][]byte
				for _, event := range []core.Event{
					{At: time.Now(), By: "dinghy/1", Started: &core.Started{Node: "dinghy", Version: 1, Workflow: "order", Input: []byte(`{"n":1}`)}},
					{At: time.Now(), By: "dinghy/1", Step: &core.Step{Path: "/do/0/first", Data: []byte(`{"some":"result"}`)}},
				} {
					text, err := json.Marshal(event)
					if err != nil {
						b.t.Error(err)
					}
					records = append(records, text)
				}
				key := fmt.Sprintf("default/shop/e%d", i)
				seq, err := log.Append(b.t.Context(), key, 0, records[0])
				if err == nil {
					_, err = log.Append(b.t.Context(), key, seq, records[1])
				}
				if err != nil {
					b.t.Error(err)
				}
			}
		})
	}
	writing.Wait()
}

// What `outboard workflows` asks while thousands of executions are open.
func BenchmarkWorkflows(b *testing.B) {
	s := openShop(b)
	s.open(11_000)
	for b.Loop() {
		var all []client.Workflow
		if err := s.ask("GET", "/v1/workflows", nil, &all); err != nil || len(all) != 1 || all[0].Running != 11_000 {
			b.Fatal(err, all)
		}
	}
}
