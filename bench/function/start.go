package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/function"
)

// start measures the cost of fresh state for one small call: with an instance that is reset, one
// that is cloned, and one that the engine creates and that initialises itself.
func (b *bench) start(ctx context.Context) error {
	return b.withRuntime(ctx, func(r *function.Runtime) error {
		for _, g := range []struct {
			pkg, name, request, want string
			goals                    bool
		}{
			{smallGuest, "the least module", "key7", "8", true},
			{workGuest, "a module with JSON", "echo hello", "hello", false},
		} {
			s, err := b.newStarts(ctx, r, g.pkg, g.request, g.want)
			if err != nil {
				return err
			}
			if err := errors.Join(b.measureStarts(ctx, s, g.name, g.goals), s.close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// starts are the functions by which a call of one module can begin.
type starts struct {
	size          int // of the module
	reset, cloned *function.Function
	plain         *plain
	request       []byte
	want          string
}

func (b *bench) newStarts(ctx context.Context, r *function.Runtime, pkg, request, want string) (*starts, error) {
	code, err := b.guests.bytes(ctx, pkg)
	if err != nil {
		return nil, err
	}
	s := &starts{size: len(code), request: []byte(request), want: want}
	if s.reset, err = r.Deploy(ctx, code, function.Settings{Name: "reset"}); err != nil {
		return nil, err
	}
	if s.cloned, err = r.Deploy(ctx, code, function.Settings{Name: "cloned"}); err != nil {
		return nil, err
	}
	s.plain, err = newPlain(ctx, code)
	return s, err
}

func (s *starts) close() error {
	return errors.Join(s.reset.Close(), s.cloned.Close(), s.plain.close())
}

func (s *starts) check(got []byte, err error) error {
	if err == nil && string(got) != s.want {
		err = fmt.Errorf("got %q, want %q: the state was not fresh", got, s.want)
	}
	return err
}

func (s *starts) call(ctx context.Context, f *function.Function) error {
	p, err := f.Call(ctx, function.Request{Body: s.request})
	return s.check(p.Body, err)
}

// onAnotherSlot calls a new instance.
func (s *starts) onAnotherSlot(ctx context.Context) error {
	err := s.call(ctx, s.cloned)
	s.cloned.Trim(0)
	return err
}

func (s *starts) plainly(ctx context.Context) error {
	m, err := s.plain.start(ctx, s.request)
	if m != nil {
		err = errors.Join(err, m.Close(ctx))
	}
	return s.check(s.plain.response, err)
}

func (b *bench) measureStarts(ctx context.Context, s *starts, name string, goals bool) error {
	turn := b.Turn(300*time.Millisecond, 50*time.Millisecond)
	all, err := b.turns(ctx, b.Rounds(11, 3),
		perCall(turn, func() error { return s.call(ctx, s.reset) }),
		perCall(turn, func() error { return s.onAnotherSlot(ctx) }),
		perCall(turn, func() error { return s.plainly(ctx) }),
	)
	if err != nil {
		return err
	}
	name = fmt.Sprintf("%s, %.1f MB", name, float64(s.size)/1e6)
	const reference = "instantiate, init and call"
	var most, resets, clones float64
	if goals {
		most, resets, clones = 10, 500, 20
	}
	b.Row(paired.NewRow("fresh start of "+name+": reset and call", "us", reference, all[0].values, all[2].values, paired.Goal{Max: most}))
	b.Row(faster("fresh start of "+name, reference, all[0].values, all[2].values, resets))
	b.Row(paired.NewRow("first start on another slot, "+name+": clone and call", "us", reference, all[1].values, all[2].values, paired.Goal{}))
	b.Row(faster("first start on another slot, "+name, reference, all[1].values, all[2].values, clones))
	return nil
}
