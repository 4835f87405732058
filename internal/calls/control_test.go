package calls

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// ends are two controls that talk to each other until the test ends.
func ends(t *testing.T, a, b func(c *control, m *message)) (x, y *control) {
	t.Helper()
	f, g, err := pairOfPackets()
	if err != nil {
		t.Fatal(err)
	}
	x, y = open(t, f, a), open(t, g, b)
	return x, y
}

func open(t *testing.T, f *os.File, take func(*control, *message)) *control {
	t.Helper()
	c, err := newControl(f)
	if err != nil {
		t.Fatal(err)
	}
	c.handle = func(m *message) { take(c, m) }
	go c.run()
	t.Cleanup(func() {
		_ = c.conn.Close()
		<-c.done
	})
	return c
}

func nobody(_ *control, m *message) { m.close() }

func TestControl(t *testing.T) {
	a, b := ends(t, nobody, func(c *control, m *message) {
		switch m.Type {
		case msgLink:
			f, g, err := pairOfStreams()
			if err == nil {
				defer g.Close()
				_, err = g.WriteString("hello")
			}
			c.answer(m, &message{files: []*os.File{f}}, err)
		case msgServe:
			defer m.close()
			c.answer(m, &message{Process: len(m.files), Data: m.Data}, nil)
		default:
			c.answer(m, nil, outboard.Errorf(outboard.Denied, "test", "no"))
		}
	})
	got, err := a.ask(t.Context(), &message{Type: msgLink})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := connOf(got.file())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if text, err := io.ReadAll(nc); string(text) != "hello" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	large := bytes.Repeat([]byte{0xff}, 64<<10)
	files := []*os.File{os.Stdin, os.Stderr}
	if got, err = a.ask(t.Context(), &message{Type: msgServe, Data: large, files: files}); err != nil || got.Process != 2 || !bytes.Equal(got.Data, large) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := a.ask(t.Context(), &message{Type: "other"}); outboard.KindOf(err) != outboard.Denied || !strings.Contains(err.Error(), "no") {
		t.Errorf("got %v", err)
	}
	if err := a.tell(&message{Type: msgServe, Data: bytes.Repeat(large, 3)}); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("a packet that is too long: %v", err)
	}
	_ = b.conn.Close()
	if _, err := a.ask(t.Context(), &message{Type: msgServe}); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("after the end: %v", err)
	}
}

// A node whose hand-over is another than the process's is told so.
func TestHandoverVersion(t *testing.T) {
	f, g, err := pairOfPackets()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), g, ProcessOptions{Version: "1.4"}) }()
	node := open(t, f, nobody)
	_, err = node.ask(t.Context(), &message{Type: msgServe})
	if outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("serve before start: %v", err)
	}
	_, err = node.ask(t.Context(), &message{Type: msgStart, Config: &Config{Handover: Handover + 1}})
	if outboard.KindOf(err) != outboard.Protocol || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "1.4") {
		t.Errorf("start: %v", err)
	}
	_ = node.conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A door that is shut lets go of its port only when all whom it has let in were
// looked at.
func TestDoorWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := newDoor(l)
	visitor, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer visitor.Close()
	nc, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	shut := make(chan error, 1)
	go func() { shut <- d.shut() }()
	for refused := false; !refused; {
		late, err := net.Dial("tcp", l.Addr().String())
		if refused = err != nil; !refused {
			_ = late.Close()
		}
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := d.Accept()
		waiting <- err
	}()
	for range 1000 {
		runtime.Gosched() // it would have time to return
	}
	select {
	case <-shut:
		t.Fatal("the door did not wait")
	default:
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := <-shut; err != nil {
		t.Error(err)
	}
	_ = d.Close()
	if err := <-waiting; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

func TestMerge(t *testing.T) {
	now := []client.Calls{{Service: "s", Method: "B", Rate: 5, P99: 2, InFlight: 1, Total: 10, Acted: map[string]uint64{"p": 1}}}
	before := []client.Calls{
		{Service: "s", Method: "A", InFlight: 2, Total: 7},
		{Service: "s", Method: "B", Rate: 1, P99: 9, InFlight: 3, Total: 20, Acted: map[string]uint64{"p": 2, "q": 1}},
	}
	want := []client.Calls{
		{Service: "s", Method: "A", InFlight: 2, Total: 7},
		{Service: "s", Method: "B", Rate: 6, P99: 2, InFlight: 4, Total: 30, Acted: map[string]uint64{"p": 3, "q": 1}},
	}
	if diff := cmp.Diff(want, merge(now, before)); diff != "" {
		t.Error(diff)
	}
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// What a process logs the node logs, in its own way.
func TestRelay(t *testing.T) {
	tests := map[string]struct {
		line, want string
		ok         bool
	}{
		"record":       {`{"time":"2026-11-20T14:00:00Z","level":"WARN","msg":"slow","b":2,"a":"x"}`, "level=WARN msg=slow a=x b=2\n", true},
		"large number": {`{"level":"INFO","msg":"x","n":9196000000}`, "level=INFO msg=x n=9196000000\n", true},
		"too quiet":    {`{"level":"DEBUG","msg":"x"}`, "", true},
		"no level":     {`{"msg":"x"}`, "", false},
		"other level":  {`{"level":"LOUD","msg":"x"}`, "", false},
		"no message":   {`{"level":"INFO"}`, "", false},
		"no object":    {`[1]`, "", false},
		"a panic's":    {"panic: x", "", false},
		"half a line":  {`{"level":"INFO",`, "", false},
		"not a string": {`{"level":"INFO","msg":1}`, "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out lines
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
			if _, ok := relay(log, []byte(test.line)); ok != test.ok {
				t.Errorf("got %v", ok)
			}
			if diff := cmp.Diff(test.want, out.text.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzRelay(f *testing.F) {
	f.Add([]byte(`{"level":"WARN","msg":"slow","a":"x"}`))
	f.Add([]byte(`{"level":"INFO","msg":""}`))
	f.Add([]byte("panic"))
	log := slog.New(slog.DiscardHandler)
	f.Fuzz(func(_ *testing.T, line []byte) {
		if len(line) > 0 {
			relay(log, line)
		}
	})
}

// FuzzControl sends what is no message, or half of one.
func FuzzControl(f *testing.F) {
	f.Add([]byte(`{"type":"answer","seq":1}`))
	f.Add([]byte(`{"type":"start","config":{"handover":2}}`))
	f.Add([]byte(`{"type":"peer","data":"AAAA"}`))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) == 0 || len(packet) > maxPacket {
			return
		}
		a, b, err := pairOfPackets()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- Run(ctx, b, ProcessOptions{}) }()
		c, err := newControl(a)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.conn.Write(packet)
		_ = c.conn.Close()
		<-done
	})
}
