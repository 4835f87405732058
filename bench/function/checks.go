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

// work is a request that a handler gets: a few kilobytes of JSON.
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

// checks is what it costs to have a deadline and fuel.
func (b *bench) checks(ctx context.Context) error {
	return b.withRuntime(ctx, func(r *function.Runtime) error {
		request, err := work()
		if err != nil {
			return err
		}
		on, err := b.deploy(ctx, r, workGuest, function.Settings{Name: "on", Limits: function.Limits{Fuel: 1 << 40, Deadline: time.Minute}})
		if err != nil {
			return err
		}
		off, err := b.deploy(ctx, r, workGuest, function.Settings{Name: "off", Unmetered: true})
		if err != nil {
			return err
		}
		if err := sameAnswers(ctx, request, on, off); err != nil {
			return err
		}
		call := func(f *function.Function) way {
			return perCall(b.turn(400*time.Millisecond, 60*time.Millisecond), func() error {
				_, err := f.Call(ctx, function.Request{Body: request})
				return err
			})
		}
		all, err := b.turns(ctx, b.rounds(15, 3), call(on), call(off))
		if err != nil {
			return err
		}
		b.row(because(paired.NewRow("a handler that works on JSON, with deadline and fuel", "us", "without", all[0].values, all[1].values, paired.Goal{MaxRatio: 1.1}), checksStay))
		return nil
	})
}

const checksStay = "A check is a counter in memory and a way to the host that comes back. At each loop it costs a few instructions, and the engine reads memory's place and size again behind it; " +
	"it is left out at the entry of functions that are soon done. The faster the code around the checks became, the larger their part."

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
