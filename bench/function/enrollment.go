package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/pool/bucket"
)

const (
	wantedRate     = 12_000 // requests a second, as reported by the reference system
	processClients = 128    // clients in this process
	connClients    = 64     // clients over connections
)

// enrollment measures the example of that name under load: seats must not be oversold, and repeated
// requests must count once.
func (b *bench) enrollment(ctx context.Context) error {
	a, err := b.example(ctx, "enrollment")
	if err != nil {
		return err
	}
	return b.withStage(ctx, a, func(s *testNode) error {
		o := &enrollmentLoad{stage: s, at: s.addr(), term: theTerm()}
		if err := o.open(ctx); err != nil {
			return err
		}
		defer o.close()
		turn := b.Turn(2*time.Second, 400*time.Millisecond)
		all, err := b.turns(ctx, b.Rounds(5, 2), o.runClients(o.inProcess, processClients, turn), o.runClients(o.overHTTP, connClients, turn))
		if err != nil {
			return err
		}
		reported := make([]float64, len(all[0].values))
		for i := range reported {
			reported[i] = wantedRate
		}
		b.Row(paired.NewRow("enrolment, clients in the process", "requests/s", "reported by the reference system on 6 machines",
			all[0].values, reported, paired.Goal{Min: wantedRate}))
		b.Row(paired.NewRow(fmt.Sprintf("enrolment, %d connections", connClients), "requests/s", "", all[1].values, nil, paired.Goal{}))
		b.Row(paired.NewRow("enrolment: processor time of everything", "us a request", "", all[0].timePerOperation(), nil, paired.Goal{}))
		return b.auditRows(ctx, o)
	})
}

func (b *bench) auditRows(ctx context.Context, o *enrollmentLoad) error {
	in, err := o.register(ctx)
	if err != nil {
		return err
	}
	found := o.term.auditAnswers(o.seated, in)
	for _, w := range o.wrong[:min(len(o.wrong), 10)] {
		fmt.Fprintln(os.Stderr, "  ", w)
	}
	title := fmt.Sprintf("enrolment, %d requests of %d students for %d courses: ", o.count, o.last.Load(), o.term.courses)
	b.None(title+"seats oversold or lost", "seats", float64(found.oversold))
	b.None(title+"requests counted twice", "requests", float64(found.twice))
	b.None(title+"seats told and not in the bucket, or there and not told", "seats", float64(found.missing+found.unknown))
	b.None(title+"wrong answers", "answers", float64(len(o.wrong)))
	return nil
}

// An enrollmentLoad is the app under load, with the recorded responses of its clients.
type enrollmentLoad struct {
	stage *testNode
	at    string // the address to which clients connect
	term  term
	last  atomic.Int64 // the last student's number

	seated []int
	wrong  []string
	count  int
	conns  []*connClient
}

// open opens the courses.
func (o *enrollmentLoad) open(ctx context.Context) error {
	for i := range o.term.courses {
		var m memory
		r, err := newRequest(ctx, http.MethodPost, "/enrollment/courses/"+o.term.course(i), []byte(strconv.Itoa(o.term.seats(i))))
		if err != nil {
			return err
		}
		o.stage.tenant.Requests().ServeHTTP(m.ready(), r)
		if m.status != http.StatusCreated {
			return fmt.Errorf("open course %d: status %d: %s", i, m.status, m.body)
		}
	}
	return nil
}

func (o *enrollmentLoad) close() {
	for _, c := range o.conns {
		_ = c.conn.Close() // the connection is not used any more
	}
}

func (o *enrollmentLoad) inProcess(ctx context.Context, _ int) (enroller, error) {
	return &handlerClient{ctx: ctx, handler: o.stage.tenant.Requests(), term: o.term}, nil
}

// overHTTP returns a client whose connection stays open.
func (o *enrollmentLoad) overHTTP(ctx context.Context, i int) (enroller, error) {
	for len(o.conns) <= i {
		c, err := newConnClient(ctx, o.at, o.term)
		if err != nil {
			return nil, err
		}
		o.conns = append(o.conns, c)
	}
	return o.conns[i], nil
}

// runClients returns a measurement in which n clients request seats as fast as they can, in
// requests a second.
func (o *enrollmentLoad) runClients(open func(context.Context, int) (enroller, error), n int, turn time.Duration) measurement {
	return func(ctx context.Context) (float64, error) {
		clients, errs := make([]*applicant, n), make([]error, n)
		for i := range clients {
			d, err := open(ctx, i)
			if err != nil {
				return 0, err
			}
			clients[i] = &applicant{term: o.term, enroller: d, next: func() int { return int(o.last.Add(1)) }}
		}
		var all sync.WaitGroup
		begin := time.Now()
		for i, c := range clients {
			all.Go(func() {
				for time.Since(begin) < turn && errs[i] == nil {
					errs[i] = c.step()
				}
			})
		}
		all.Wait()
		took := time.Since(begin)
		return float64(o.recordResponses(clients)) / took.Seconds(), errors.Join(errs...)
	}
}

// recordResponses records the responses of clients, and returns the number of their requests.
func (o *enrollmentLoad) recordResponses(clients []*applicant) int {
	count := 0
	for _, c := range clients {
		o.seated, o.wrong = append(o.seated, c.seated...), append(o.wrong, c.wrong...)
		count += c.count
	}
	o.count += count
	return count
}

// register reads the bucket, as another owner than the app.
func (o *enrollmentLoad) register(ctx context.Context) (register, error) {
	in := register{free: map[string]int{}, students: map[string]map[string]bool{}, requests: map[string]bool{}}
	bk, err := bucket.Open(ctx, bucket.Options{State: o.stage.state, Tenant: manifest.DefaultTenant, App: "enrollment", Name: "seats"})
	if err != nil {
		return in, err
	}
	defer bk.Close()
	keys, err := bk.Keys(ctx, "")
	if err != nil {
		return in, err
	}
	for _, key := range keys {
		switch kind, rest, _ := strings.Cut(key, "/"); kind {
		case "request":
			in.requests[rest] = true
		case "student":
			course, name, _ := strings.Cut(rest, "/")
			if in.students[course] == nil {
				in.students[course] = map[string]bool{}
			}
			in.students[course][name] = true
		case "free":
			e, err := bk.Get(ctx, key)
			if err != nil {
				return in, err
			}
			if in.free[rest], err = strconv.Atoi(string(e.Value)); err != nil {
				return in, err
			}
		}
	}
	return in, nil
}
