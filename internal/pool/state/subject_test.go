package state_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/pool/state"
)

func TestSubjects(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	node := alone(ctx, t)
	helper := attached(ctx, t, node)
	got := make(chan string, 100)
	var stops []func()
	subscribe := func(name, subject, queue string, s *state.State) {
		stop, err := s.Subscribe(subject, queue, func(m state.Message) {
			got <- name + " " + m.Subject + " " + string(m.Data)
			if m.Respond != nil {
				if err := m.Respond([]byte("answer to " + string(m.Data))); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	subscribe("each", "orders.>", "", helper)
	subscribe("one", "orders.*", "workers", node.State)
	subscribe("one", "orders.*", "workers", helper)
	for !answered(ctx, helper) {
		<-got // The subscriptions are on their way.
	}
	drain(got)
	const n = 20
	for i := range n {
		if err := node.Publish(ctx, "orders.new", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	count := map[string]int{}
	for range 2 * n {
		count[<-got]++
	}
	want := map[string]int{}
	for i := range n {
		want[fmt.Sprint("each orders.new ", i)] = 1
		want[fmt.Sprint("one orders.new ", i)] = 1
	}
	if diff := cmp.Diff(count, want); diff != "" {
		t.Errorf("heard: got against want:\n%s", diff)
	}
	answer, err := node.Request(ctx, "orders.new", []byte("x"))
	if err != nil || string(answer) != "answer to x" {
		t.Errorf("answer %q, error %v", answer, err)
	}
	for _, stop := range stops {
		stop()
		stop() // Twice does no harm.
	}
	drain(got)
	if _, err := node.Request(ctx, "orders.new", []byte("x")); err == nil {
		t.Error("somebody answers who has unsubscribed")
	}
}

// answered asks until all subscriptions are known to the server.
func answered(ctx context.Context, s *state.State) bool {
	_, err := s.Request(ctx, "orders.new", []byte("there?"))
	return err == nil
}

func drain(c <-chan string) {
	for {
		select {
		case <-c:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

func TestSubjectsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := alone(ctx, t).State
	for _, subject := range []string{
		"", ".", "a.", "a..b", "a b", "a\r\nPUB", ">", "*", "*.changes.>", "a.>.b",
		"outboard.changes.>", "outboard", "$JS.API.>", "$KV.outboard.config/authority", "$SYS.>", "_INBOX.>",
	} {
		stop, err := s.Subscribe(subject, "", func(state.Message) {})
		if err == nil {
			stop()
			t.Errorf("subscribed to %q", subject)
		}
	}
	for _, subject := range []string{"a.*", "a.>", "outboard.changes.x", "$JS.API.STREAM.DELETE.KV_outboard", ""} {
		if err := s.Publish(ctx, subject, nil); err == nil {
			t.Errorf("published on %q", subject)
		}
	}
	if _, err := s.Subscribe("a", "two words", func(state.Message) {}); err == nil {
		t.Error("a queue with a space was let through")
	}
}

// Unsubscribing waits for the message that is being treated.
func TestUnsubscribeWaits(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := alone(ctx, t).State
	entered, leave := make(chan struct{}), make(chan struct{})
	var left sync.WaitGroup
	left.Add(1)
	stop, err := s.Subscribe("a", "", func(state.Message) {
		close(entered)
		<-leave
		left.Done()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(ctx, "a", nil); err != nil {
		t.Fatal(err)
	}
	<-entered
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("unsubscribed while a message was being treated")
	case <-time.After(20 * time.Millisecond):
	}
	close(leave)
	<-stopped
	left.Wait()
}

// Who unsubscribes still gets what has come already: nobody else will.
func TestUnsubscribeDrains(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := alone(ctx, t).State
	const messages = 100
	first, proceed := make(chan struct{}), make(chan struct{})
	heard := 0
	stop, err := s.Subscribe("orders.new", "readers", func(state.Message) {
		if heard++; heard == 1 {
			close(first)
			<-proceed
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		if err := s.Publish(ctx, "orders.new", nil); err != nil {
			t.Fatal(err)
		}
	}
	<-first
	// An answer shows that the server has sent on what it got before.
	if _, err := s.Request(ctx, "nobody.there", nil); err == nil {
		t.Fatal("nobody has answered")
	}
	close(proceed)
	stop()
	if heard != messages {
		t.Errorf("heard %d of %d messages", heard, messages)
	}
}
