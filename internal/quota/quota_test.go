package quota

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
)

func TestBudget(t *testing.T) {
	b := NewBudget(Arenas, 100)
	if err := b.TryReserve(60); err != nil {
		t.Fatal(err)
	}
	err := b.TryReserve(41)
	if outboard.KindOf(err) != outboard.Exhausted || !strings.Contains(err.Error(), "outboard up --tenant-limits arenas=SIZE") {
		t.Errorf("41 more of 100: %v, want Exhausted with the remedy", err)
	}
	if err := b.Check(40); err != nil {
		t.Errorf("40 more: %v", err)
	}
	b.Adjust(60) // it is there, whatever the limit
	if err := b.TryReserve(1); err == nil {
		t.Error("1 byte more than too many was granted")
	}
	b.Release(120)
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes held after all were released", held)
	}
	if err := (*Budget)(nil).TryReserve(1 << 60); err != nil {
		t.Errorf("no budget has a limit: %v", err)
	}
}

// A reservation waits for bytes that others release, and for no longer than a while.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(Requests, 100)
		if err := b.Reserve(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { b.Release(50) })
		if err := b.Reserve(t.Context(), 50); err != nil {
			t.Errorf("after a release: %v", err)
		}
		if err := b.Reserve(t.Context(), 1); outboard.KindOf(err) != outboard.Busy {
			t.Errorf("nothing is released: %v, want Busy", err)
		}
	})
}

func TestParse(t *testing.T) {
	limits, err := Parse("requests=1GiB; logs=8MiB;memory=2GiB")
	if err != nil || limits[Requests] != 1<<30 || limits[Logs] != 8<<20 || limits[Memory] != 2<<30 {
		t.Errorf("got %v, %v", limits, err)
	}
	if again, err := Parse(limits.String()); err != nil || again.String() != limits.String() {
		t.Errorf("%q becomes %q, %v", limits, again, err)
	}
	for _, text := range []string{"", "logs", "logs=", "logs=x", "logs=0", "ships=1GiB"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestMetrics(t *testing.T) {
	a := NewAccount(Limits{Logs: 10})
	registry := prometheus.NewRegistry()
	registry.MustRegister(a)
	logs := a.Budget(Logs)
	_ = logs.TryReserve(4)
	_ = logs.TryReserve(7) // refused
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == string(Logs) {
				got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"outboard_tenant_held_bytes": 4, "outboard_tenant_limit_bytes": 10, "outboard_tenant_refused_total": 1}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}
