package worker

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// stopped launches a process that loads a model for text, and then answers the messages for which
// answers returns true.
func stopped(answers func(kind string) bool) helper.Launcher {
	return helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		conn, err := ipc.FromFile(socket, ipc.Options{MaxBody: maxMessage})
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		conn.Serve(func(m *ipc.Message) {
			defer m.Close()
			switch {
			case m.Type == typeLoad:
				_ = conn.Reply(m, loadReply{Text: true}, nil)
			case answers(m.Type):
				_ = conn.Reply(m, tokensReply{[]int32{1}}, nil)
			}
		})
		return ctx.Err()
	})
}

// The calls of a process that no longer responds end, and it is killed.
func TestUnresponsiveProcessIsKilled(t *testing.T) {
	for name, call := range map[string]func(w *Worker) error{
		"tokenize": func(w *Worker) error {
			_, err := w.Tokenize(t.Context(), engine.Text{Content: "a"})
			return err
		},
		"generate": func(w *Worker) error {
			_, err := w.Generate(t.Context(), engine.Generation{Prompt: []int32{1}, LogProbs: -1}, func(engine.Token) error { return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := Start(t.Context(), Options{Launch: stopped(func(string) bool { return false }), Engine: "fake", PingInterval: 10 * time.Millisecond, PingLimit: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if err := call(w); outboard.KindOf(err) != outboard.Unreachable {
				t.Errorf("got %v", err)
			}
			<-w.Done()
			_ = w.Close()
		})
	}
}

// A process that computes for long, and responds, is not killed.
func TestBusyProcessIsNotKilled(t *testing.T) {
	pings := make(chan struct{}, 100)
	w, err := Start(t.Context(), Options{Engine: "fake", PingInterval: 10 * time.Millisecond, PingLimit: time.Minute, Launch: stopped(func(kind string) bool {
		if kind == typePing {
			pings <- struct{}{}
		}
		return kind == typePing
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Tokenize(ctx, engine.Text{Content: "a"})
		ended <- err
	}()
	for range 3 {
		<-pings
	}
	select {
	case <-w.Done():
		t.Errorf("it was killed: %v", w.Err())
	case err := <-ended:
		t.Errorf("its call has ended: %v", err)
	default:
	}
	cancel()
	<-ended
	_ = w.Close()
}
