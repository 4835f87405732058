package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/function"
)

const (
	chainSteps = 4
	chainSize  = 1 << 20
)

// chain passes 1 MiB through four functions: as a place in an arena, with a copy into and out of
// each function, and over HTTP. Each step has fresh state.
func (b *bench) chain(ctx context.Context) error {
	return b.withRuntime(ctx, func(r *function.Runtime) error {
		c, err := b.newChain(ctx, r)
		if err != nil {
			return err
		}
		return errors.Join(b.measureChain(ctx, c), c.close())
	})
}

// A chainOf is a chain of functions, each of which returns its request.
type chainOf struct {
	arena   *function.Arena
	place   function.Extent
	value   []byte
	steps   []*function.Function
	copies  []*function.Function // functions without an arena
	servers []*loopbackServer
	client  http.Client
}

func (b *bench) newChain(ctx context.Context, r *function.Runtime) (*chainOf, error) {
	c := &chainOf{value: bytes.Repeat([]byte("one megabyte... "), chainSize/16), client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
	var err error
	if c.arena, err = function.NewArena(chainSize); err != nil {
		return nil, err
	}
	if c.place, err = c.arena.Put(c.value); err != nil {
		return nil, err
	}
	for range chainSteps {
		if err := c.add(ctx, b, r); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

// add adds a step: with the arena, with copies, and as an HTTP server.
func (c *chainOf) add(ctx context.Context, b *bench, r *function.Runtime) error {
	for _, to := range []*[]*function.Function{&c.steps, &c.copies} {
		f, err := b.deploy(ctx, r, passGuest, function.Settings{Name: "pass"})
		if err != nil {
			return err
		}
		*to = append(*to, f)
	}
	d, err := serveLoopback(ctx, functionHandler(c.copies[len(c.copies)-1]))
	if err != nil {
		return err
	}
	c.servers = append(c.servers, d)
	return nil
}

func (c *chainOf) close() error {
	c.client.CloseIdleConnections()
	errs := []error{c.arena.Close()}
	for _, d := range c.servers {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

// functionHandler answers HTTP requests with a function.
func functionHandler(f *function.Function) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var p function.Response
		if err == nil {
			p, err = f.Call(r.Context(), function.Request{Body: body})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(p.Body) // the client hung up
	})
}

// A loopbackServer is an HTTP server on the loopback device.
type loopbackServer struct {
	server http.Server
	addr   string
	done   chan error
}

func serveLoopback(ctx context.Context, h http.Handler) (*loopbackServer, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &loopbackServer{server: http.Server{Handler: h, ReadHeaderTimeout: time.Minute}, addr: l.Addr().String(), done: make(chan error, 1)}
	go func() { d.done <- d.server.Serve(l) }()
	return d, nil
}

func (d *loopbackServer) close() error {
	err := d.server.Close()
	if ended := <-d.done; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

func (c *chainOf) byPlace(ctx context.Context) error {
	for _, f := range c.steps {
		p, err := f.Call(ctx, function.Request{Arena: c.arena, Place: &c.place})
		if err != nil {
			return err
		}
		if p.Place == nil || *p.Place != c.place {
			return fmt.Errorf("a step answered with the place %v, want %v", p.Place, c.place)
		}
	}
	return nil
}

func (c *chainOf) byCopies(ctx context.Context) error {
	value := c.value
	for _, f := range c.copies {
		p, err := f.Call(ctx, function.Request{Body: value})
		if err != nil {
			return err
		}
		value = p.Body
	}
	return c.check(value)
}

func (c *chainOf) overHTTP(ctx context.Context) error {
	value := c.value
	for _, d := range c.servers {
		var err error
		if value, err = post(ctx, &c.client, "http://"+d.addr+"/", "application/octet-stream", value); err != nil {
			return err
		}
	}
	return c.check(value)
}

func (c *chainOf) check(value []byte) error {
	if !bytes.Equal(value, c.value) {
		return fmt.Errorf("the value came out changed, with %d bytes", len(value))
	}
	return nil
}

func post(ctx context.Context, c *http.Client, url, kind string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", kind)
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %.500s", url, response.Status, answer)
	}
	return answer, err
}

func (b *bench) measureChain(ctx context.Context, c *chainOf) error {
	turn := b.Turn(400*time.Millisecond, 60*time.Millisecond)
	all, err := b.turns(ctx, b.Rounds(9, 3),
		perCall(turn, func() error { return c.byPlace(ctx) }),
		perCall(turn, func() error { return c.byCopies(ctx) }),
		perCall(turn, func() error { return c.overHTTP(ctx) }),
	)
	if err != nil {
		return err
	}
	const name = "1 MiB through four steps"
	b.Row(paired.NewRow(name+", by place", "us", "over HTTP", all[0].values, all[2].values, paired.Goal{}))
	b.Row(faster(name, "over HTTP", all[0].values, all[2].values, 500))
	b.Row(paired.NewRow(name+", by place: each hop", "us", "two copies", perHop(all[0].values), perHop(all[1].values), paired.Goal{}))
	b.Row(faster(name+", each hop", "two copies", all[0].values, all[1].values, 20))
	return nil
}

func perHop(values []float64) []float64 {
	hops := make([]float64, len(values))
	for i, v := range values {
		hops[i] = v / chainSteps
	}
	return hops
}
