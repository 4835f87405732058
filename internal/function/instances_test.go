package function

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// BenchmarkInstances is the memory of instances that served a call and wait for the next
// one: idle slots, and instances of the engine as it is.
func BenchmarkInstances(b *testing.B) {
	const slots, instances = 400, 40
	app, q := goGuest(b, "handler"), Request{Entry: DefaultEntry, Body: []byte("echo hello")}
	r := open(b, Options{})
	f := deploy(b, r, app, Limits{})
	for first := true; b.Loop(); first = false {
		before := resident(b)
		for range slots {
			s, err := f.version.clone()
			if err != nil {
				b.Fatal(err)
			}
			p, err := s.serve(b.Context(), q)
			f.releaseSlot(s, p, err)
		}
		slot := float64(resident(b)-before) / slots
		before = resident(b)
		var all []api.Module
		instance := plainInstance(b, r, app, q)
		for range instances {
			all = append(all, instance())
		}
		plain := float64(resident(b)-before) / instances
		if first {
			b.ReportMetric(slot/1024, "slot-KiB")
			b.ReportMetric(plain/1024, "plain-KiB")
			b.ReportMetric((1<<30)/slot, "slots/GiB")
			b.ReportMetric((1<<30)/plain, "plain/GiB")
			b.ReportMetric(plain/slot, "x")
		}
		f.Trim(0)
		for _, m := range all {
			_ = m.Close(context.Background())
		}
	}
}

// resident is the memory of this process, pages that are mapped several times counted
// once, with the kernel's tables of pages.
func resident(b *testing.B) int {
	runtime.GC()
	debug.FreeOSMemory()
	return kilobytes(b, "/proc/self/smaps_rollup", "Pss:") + kilobytes(b, "/proc/self/status", "VmPTE:")
}

// kilobytes reads a line of a file in bytes.
func kilobytes(b *testing.B, file, name string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		b.Skip(err)
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			n, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				b.Fatal(err)
			}
			return n << 10
		}
	}
	b.Skipf("no %s in %s", name, file)
	return 0
}

// plainInstance makes instances of a module as it is, each of which served a call.
func plainInstance(b *testing.B, r *Runtime, module []byte, q Request) func() api.Module {
	compiled, err := r.engine.CompileModule(context.Background(), module)
	if err != nil {
		b.Fatal(err)
	}
	limits := Limits{}
	limits.setDefaults()
	return func() api.Module {
		s := &slot{limits: &limits, call: invocation{request: q.Body}}
		s.meter.start(b.Context(), &limits)
		ctx := context.WithValue(context.Background(), slotKey{}, s)
		m, err := r.engine.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
		if err != nil {
			b.Fatal(err)
		}
		s.instance = m
		if _, err := m.ExportedFunction(q.Entry).Call(ctx); err != nil {
			b.Fatal(err)
		}
		return m
	}
}
