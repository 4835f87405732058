package function

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/function/image"
)

// order is a request that a realistic handler gets: a few kilobytes of JSON.
func order() []byte {
	type item struct {
		Name  string   `json:"name"`
		Count int      `json:"count"`
		Tags  []string `json:"tags"`
	}
	var items []item
	for i := range 20 {
		items = append(items, item{fmt.Sprint("key", i*7), i * 31 % 17, []string{"a", "b", "c"}})
	}
	body, _ := json.Marshal(items)
	return append([]byte("work "), body...)
}

// compare runs ways by turns, so that all meet the same disturbances, and reports the
// medians of all and how many times the first one the others take. A turn takes 2 ms
// at least: a short way would be measured with the caches that a long one left. The
// same of the process's CPU time, which is what counts where others use the machine.
func compare(b *testing.B, names []string, ways ...func()) {
	times, cpu := make([][]time.Duration, len(ways)), make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, way := range ways {
			begin, used, n := time.Now(), cpuTime(), 0
			for n == 0 || time.Since(begin) < turn {
				way()
				n++
			}
			times[i] = append(times[i], time.Since(begin)/time.Duration(n))
			cpu[i] = append(cpu[i], (cpuTime()-used)/time.Duration(n))
		}
	}
	for i, name := range names {
		b.ReportMetric(median(times[i])/1e3, name+"-us")
		if i > 0 {
			b.ReportMetric(median(times[i])/median(times[0]), name+"-x")
			b.ReportMetric(median(cpu[i])/median(cpu[0]), name+"-cpu-x")
		}
	}
}

func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2])
}

// cpuTime is what the process used so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const turn = 2 * time.Millisecond

func mustCall(b *testing.B, f *Function, q Request) func() {
	return func() {
		if _, err := f.Call(b.Context(), q); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChecks is what the checks of deadline and fuel cost a handler.
func BenchmarkChecks(b *testing.B) {
	r := open(b, Options{})
	app := goGuest(b, "handler")
	off, err := r.Deploy(b.Context(), app, Settings{Name: "off", Unmetered: true})
	if err != nil {
		b.Fatal(err)
	}
	on := deploy(b, r, app, Limits{Fuel: 1 << 40})
	q := Request{Body: order()}
	compare(b, []string{"off", "on"}, mustCall(b, off, q), mustCall(b, on, q))
}

// plain instantiates the module as it is, initialises it and calls it once, without
// anything of this package.
func plain(b *testing.B, r *Runtime, module []byte, q Request) func() {
	q.Entry = DefaultEntry
	instance := plainInstance(b, r, module, q)
	return func() { _ = instance().Close(context.Background()) }
}

// BenchmarkStart is the price of a fresh instance and a small call, in all ways.
func BenchmarkStart(b *testing.B) {
	app, q := goGuest(b, "handler"), Request{Body: []byte("echo hello")}
	scan, drop := open(b, Options{}), open(b, Options{Reset: image.Drop})
	scanned, dropped, cloned := deploy(b, scan, app, Limits{}), deploy(b, drop, app, Limits{}), deploy(b, scan, app, Limits{})
	clone := mustCall(b, cloned, q)
	compare(b, []string{scan.Reset().String(), "drop", "clone", "plain"},
		mustCall(b, scanned, q), mustCall(b, dropped, q),
		func() { clone(); cloned.Trim(0) },
		plain(b, scan, app, q),
	)
}

// BenchmarkHTTP is a round of requests over 8 connections to a native handler, and to
// a function whose state is fresh for each request.
func BenchmarkHTTP(b *testing.B) {
	f := deploy(b, open(b, Options{}), goGuest(b, "handler"), Limits{Concurrency: 8, Queue: 100})
	native := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	defer native.Close()
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p, err := f.Call(r.Context(), Request{Body: append([]byte("echo "), body...)})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(p.Body)
	}))
	defer function.Close()
	compare(b, []string{"native", "function"}, round(b, native.URL), round(b, function.URL))
}

func round(b *testing.B, url string) func() {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	b.Cleanup(client.CloseIdleConnections)
	return func() {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 100 {
					post(b, client, url)
				}
			})
		}
		all.Wait()
	}
}

func post(b *testing.B, client *http.Client, url string) {
	p, err := client.Post(url, "text/plain", bytes.NewReader([]byte("hello world")))
	if err != nil {
		b.Error(err)
		return
	}
	got, err := io.ReadAll(p.Body)
	_ = p.Body.Close()
	if err != nil || string(got) != "hello world" {
		b.Errorf("got %q, %v", got, err)
	}
}

// BenchmarkChain hands 1 MiB through four steps: by place in an arena, with two copies for
// each step, and over HTTP. Each step is a call in a fresh instance.
func BenchmarkChain(b *testing.B) {
	const steps, size = 4, 1 << 20
	r := open(b, Options{})
	pass := goGuest(b, "pass")
	a := newArena(b, size)
	place := Extent{0, size}
	var placed, copied []*Function
	var servers []string
	for range steps {
		placed = append(placed, deploy(b, r, pass, Limits{}))
		f := deploy(b, r, pass, Limits{})
		copied = append(copied, f)
		servers = append(servers, serve(b, f))
	}
	value := make([]byte, size)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	compare(b, []string{"place", "copies", "http"},
		func() {
			for _, f := range placed {
				p, err := f.Call(b.Context(), Request{Arena: a, Place: &place})
				if err != nil || p.Place == nil || *p.Place != place {
					b.Fatal(p, err)
				}
			}
		},
		func() {
			for _, f := range copied {
				if p, err := f.Call(b.Context(), Request{Body: value}); err != nil || len(p.Body) != size {
					b.Fatal(err)
				}
			}
		},
		func() {
			for _, url := range servers {
				p, err := client.Post(url, "application/octet-stream", bytes.NewReader(value))
				if err != nil {
					b.Fatal(err)
				}
				got, err := io.ReadAll(p.Body)
				_ = p.Body.Close()
				if err != nil || len(got) != size {
					b.Fatal(len(got), err)
				}
			}
		},
	)
}

// serve answers HTTP requests with a function.
func serve(b *testing.B, f *Function) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p, err := f.Call(r.Context(), Request{Body: body})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(p.Body)
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// BenchmarkTightLoop is the checks at their worst: a loop of a few instructions.
func BenchmarkTightLoop(b *testing.B) {
	r := open(b, Options{})
	loop := countdown(1 << 21)
	var ways []func()
	for _, unmetered := range []bool{true, false} {
		f, err := r.Deploy(b.Context(), loop, Settings{Unmetered: unmetered})
		if err != nil {
			b.Fatal(err)
		}
		ways = append(ways, mustCall(b, f, Request{}))
	}
	compare(b, []string{"off", "on"}, ways...)
}

// BenchmarkCall is one small call, for profiles.
func BenchmarkCall(b *testing.B) {
	f := deploy(b, open(b, Options{}), goGuest(b, "handler"), Limits{})
	call := mustCall(b, f, Request{Body: []byte("echo hello")})
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
	c := f.Counts()
	b.ReportMetric(float64(c.CopiedBack)/float64(c.Reset+c.Cloned), "copied-B/op")
	b.ReportMetric(float64(c.Dropped)/float64(c.Reset+c.Cloned), "dropped-B/op")
}
