package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/router"
)

// A policyKind is one policy of the chain.
type policyKind struct{ name, text string }

func policyKinds() []policyKind {
	return []policyKind{
		{"access", `access: {default: deny, rules: [{allow: {tenants: ["uid:*"], methods: [UnaryCall]}}]}`},
		{"rate", `rate: {rate: 10000000/s, burst: 100000000, per: tenant}`},
		{"concurrency", `concurrency: {limit: 1000000, per: method}`},
		{"breaker", `breaker: {ratio: 50%}`},
		{"log", `log: {codes: [INTERNAL]}`},
		{"condition", `when: 'metadata["tier"] == "gold"', fault: {code: UNAVAILABLE}`},
		{"rewrite", `rewrite: {metadata: {set: {x-seen: "'yes'"}}}`},
		{"timeout", `timeout: 10s`},
	}
}

// policyText returns a file of these policies.
func policyText(kinds ...policyKind) string {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i, k := range kinds {
		fmt.Fprintf(&text, "  - {name: p%d, %s}\n", i, k.text)
	}
	return text.String()
}

// A policyRun measures calls through a router without a callee.
type policyRun struct {
	Policies string
	Size     int
	Calls    int
}

// discardTransport is a transport whose unary calls return at once.
type discardTransport struct{ response call.Message }

func (n *discardTransport) Open(context.Context, *call.Head) (call.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}
func (n *discardTransport) Close() error { return nil }

//nolint:unparam // call.Unary says what it returns
func (n *discardTransport) Unary(_ context.Context, _ *call.Head, request *call.Message) (*call.Message, call.End, error) {
	request.Free()
	return &n.response, call.End{}, nil
}

// policies prepares the process that measures chains of policies.
func (a *actor) policies(context.Context) error {
	a.commands["policies"] = decodeArgs(func(ctx context.Context, j policyRun) (any, error) { return j.run(ctx) })
	return nil
}

// run returns the processor time of a call in microseconds, including that of the garbage
// collector. The calls never wait, and the time of other processes is left out.
func (j *policyRun) run(ctx context.Context) (float64, error) {
	r := router.New(router.Options{})
	defer r.Close()
	endpoint := router.Endpoint{Endpoint: balance.Endpoint{ID: "discard"}, Transport: &discardTransport{call.Message{Data: []byte{}}}, ReleasesContext: true}
	if err := r.SetService("grpc.testing.TestService", router.Service{Endpoints: []router.Endpoint{endpoint}}); err != nil {
		return 0, err
	}
	set, err := policy.Parse("chain.yaml", []byte(j.Policies), nil)
	if err != nil {
		return 0, err
	}
	r.SetPolicies(set)
	data := make([]byte, j.Size)
	h := &call.Head{Method: "/grpc.testing.TestService/UnaryCall", Metadata: metadata.Pairs("tier", "silver"), Tenant: "uid:1000", Peer: "pid:1"}
	var before resources
	for i := range j.Calls + j.Calls/10 {
		if i == j.Calls/10 {
			if before, err = usage(); err != nil {
				return 0, err
			}
		}
		if _, _, err := r.ServeUnary(ctx, h, &call.Message{Data: data}); err != nil {
			return 0, err
		}
	}
	after, err := usage()
	return after.minus(before).CPU * 1e6 / float64(j.Calls), err
}

// chain measures the cost of policies, alone and in chains of 0 to 8.
func (b *bench) chain(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		p, err := f.add(ctx, spec{Role: roleChain, Name: "chain"})
		if err != nil {
			return err
		}
		m := &chainMeter{process: p, calls: b.Rounds(100_000, 50_000)}
		for range b.Rounds(9, 5) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := m.round(); err != nil {
				return err
			}
		}
		m.rows(b)
		return nil
	})
}

// A chainMeter collects times of calls through chains.
type chainMeter struct {
	process      *process
	calls        int
	slopes, none []float64
	alone        map[string][]float64
	large        []float64
}

func (m *chainMeter) time(size int, kinds ...policyKind) (float64, error) {
	var us float64
	err := m.process.do("policies", policyRun{policyText(kinds...), size, m.calls}, &us)
	return us, err
}

func (m *chainMeter) round() error {
	kinds := policyKinds()
	lengths := make([]float64, len(kinds)+1)
	for n := range lengths {
		var err error
		if lengths[n], err = m.time(64, kinds[:n]...); err != nil {
			return err
		}
	}
	m.slopes, m.none = append(m.slopes, slope(lengths)), append(m.none, lengths[0])
	if m.alone == nil {
		m.alone = map[string][]float64{}
	}
	for _, k := range kinds {
		us, err := m.time(64, k)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		m.alone[k.name] = append(m.alone[k.name], us)
	}
	us, err := m.time(256<<10, kinds...)
	m.large = append(m.large, us-lengths[len(kinds)])
	return err
}

func (m *chainMeter) rows(b *bench) {
	wanted := paired.Goal{Max: 0.3}
	b.row(paired.NewRow("a call through the router without policies", "us of CPU", "", m.none, nil, paired.Goal{}))
	b.row(paired.NewRow("one policy more in the chain: slope over chains of 0 to 8", "us of CPU", "", m.slopes, nil, wanted))
	for _, k := range policyKinds() {
		cost := make([]float64, len(m.none))
		for i := range cost {
			cost[i] = m.alone[k.name][i] - m.none[i]
		}
		b.row(paired.NewRow("one policy more in the chain: "+k.name, "us of CPU", "", cost, nil, wanted))
	}
	b.row(paired.NewRow("eight policies that need only metadata, 256 KiB instead of 64 B: more by", "us of CPU", "", m.large, nil, paired.Goal{Max: 1}))
}

// slope returns the slope of the line through the points (0, y0), (1, y1), ... by least squares.
func slope(ys []float64) float64 {
	n := float64(len(ys))
	middle, mean := (n-1)/2, sum(ys)/n
	over, under := 0.0, 0.0
	for x, y := range ys {
		over += (float64(x) - middle) * (y - mean)
		under += (float64(x) - middle) * (float64(x) - middle)
	}
	return over / under
}
