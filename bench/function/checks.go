package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/function"
)

// work returns a request for a handler: a few kilobytes of JSON.
func work() ([]byte, error) {
	type item struct {
		Name  string   `json:"name"`
		Count int      `json:"count"`
		Tags  []string `json:"tags"`
	}
	var items []item
	for i := range 20 {
		items = append(items, item{fmt.Sprint("key", i*7), i * 31 % 17, []string{"a", "b", "c"}})
	}
	body, err := json.Marshal(items)
	return append([]byte("work "), body...), err
}

// deployments is the number of deployments of a function that are measured: each draws its own
// seeds for its hash tables, which make it some hundredths faster or slower.
const deployments = 3

// checks measures the cost of a deadline and of fuel.
func (b *bench) checks(ctx context.Context) error {
	return b.withRuntime(ctx, func(r *function.Runtime) error {
		request, err := work()
		if err != nil {
			return err
		}
		var on, off []*function.Function
		for i := range deployments {
			f, err := b.deploy(ctx, r, workGuest, function.Settings{Name: fmt.Sprint("on", i), Limits: function.Limits{Fuel: 1 << 40, Deadline: time.Minute}})
			if err != nil {
				return err
			}
			on = append(on, f)
			if f, err = b.deploy(ctx, r, workGuest, function.Settings{Name: fmt.Sprint("off", i), Unmetered: true}); err != nil {
				return err
			}
			off = append(off, f)
		}
		if err := sameAnswers(ctx, request, append(on, off...)...); err != nil {
			return err
		}
		turn := b.Turn(400*time.Millisecond, 60*time.Millisecond)
		all, err := b.turns(ctx, b.Rounds(15, 3), inTurn(turn, request, on), inTurn(turn, request, off))
		if err != nil {
			return err
		}
		b.Row(paired.NewRow("a handler that works on JSON, with deadline and fuel", "us", "without", all[0].values, all[1].values, paired.Goal{MaxRatio: 1.1}).Because(checksStay))
		return nil
	})
}

const checksStay = "A check is a counter in memory and a way to the host that comes back. At each loop it costs a few instructions, and the engine reads memory's place and size again behind it."

// inTurn returns a measurement that calls the next of some functions in each turn.
func inTurn(turn time.Duration, request []byte, functions []*function.Function) measurement {
	next := 0
	return func(ctx context.Context) (float64, error) {
		f := functions[next%len(functions)]
		next++
		return perCall(turn, func() error {
			_, err := f.Call(ctx, function.Request{Body: request})
			return err
		})(ctx)
	}
}

func sameAnswers(ctx context.Context, request []byte, functions ...*function.Function) error {
	var first []byte
	for _, f := range functions {
		p, err := f.Call(ctx, function.Request{Body: request})
		if err != nil {
			return err
		}
		if first == nil {
			first = p.Body
		}
		if !bytes.Equal(p.Body, first) {
			return errors.New("the functions answer different things")
		}
	}
	return nil
}
