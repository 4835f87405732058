package policy

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// logRules select the calls that are logged, by duration and status.
type logRules struct {
	slow         time.Duration
	codes        []codes.Code
	fields       []valueOf
	readsRequest bool // fields read the request
}

type logStep struct {
	*logRules
	policy *policy
}

func (r *logRules) bind(p *policy, _ step, _ time.Time) step { return &logStep{r, p} }

func (s *logStep) apply(x *Exchange) error {
	if s.readsRequest {
		if _, err := x.message(); err != nil {
			return &evaluationError{err}
		}
	}
	x.acquisitions = append(x.acquisitions, acquisition{owner: s})
	return nil
}

func (s *logStep) release(x *Exchange, _ acquisition, o Outcome) {
	if o.Moved {
		return // the process in which the call ends logs it
	}
	slow := s.slow > 0 && o.Now.Sub(x.Now) >= s.slow
	bad := slices.Contains(s.codes, o.Code())
	if any := s.slow == 0 && len(s.codes) == 0; !any && !slow && !bad {
		return
	}
	x.Plan.Logs = append(x.Plan.Logs, Log{Policy: s.policy.name, Slow: slow, Fields: s.evaluate(x, s.fields)})
	s.policy.recordAction(x)
}

// evaluate evaluates fields. The value of a field that fails is the error's text after "!".
func (p *policy) evaluate(x *Exchange, list []valueOf) []Field {
	fields := make([]Field, 0, len(list))
	for _, f := range list {
		v, err := f.expr.eval(x)
		if err != nil {
			p.counts.failed.Add(1)
			fields = append(fields, Field{f.key, "!" + status.Convert(err).Message()})
			continue
		}
		fields = append(fields, Field{f.key, plainValue(v)})
	}
	return fields
}

func (s *logStep) evaluate(x *Exchange, list []valueOf) []Field { return s.policy.evaluate(x, list) }

// plainValue converts a CEL value for a log.
func plainValue(v ref.Val) any {
	switch v := v.(type) {
	case types.Bool:
		return bool(v)
	case types.Int:
		return int64(v)
	case types.Uint:
		return uint64(v)
	case types.Double:
		return float64(v)
	case types.String:
		return string(v)
	case types.Duration:
		return v.Duration
	case types.Timestamp:
		return v.Format(time.RFC3339Nano)
	}
	return asJSON(v)
}

func asJSON(v ref.Val) string {
	value, err := types.DefaultTypeAdapter.NativeToValue(v).ConvertToNative(types.JSONValueType)
	if err != nil {
		return "!" + err.Error()
	}
	m, ok := value.(*structpb.Value)
	if !ok {
		return "!no value"
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return "!" + err.Error()
	}
	// The library adds spaces at random.
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return "!" + err.Error()
	}
	return compact.String()
}

type sampleRules struct{ fraction float64 }

type sampleStep struct {
	fraction float64
	policy   *policy
}

func (r *sampleRules) bind(p *policy, _ step, _ time.Time) step { return &sampleStep{r.fraction, p} }

func (s *sampleStep) apply(x *Exchange) error {
	if x.chance(s.fraction) {
		x.Plan.Sample = true
		s.policy.recordAction(x)
	}
	return nil
}

type traceRules struct {
	fraction float64
	fields   []valueOf
}

type traceStep struct {
	*traceRules
	policy *policy
	yes    Trace
	no     Trace
}

func (r *traceRules) bind(p *policy, _ step, _ time.Time) step {
	return &traceStep{traceRules: r, policy: p, yes: Trace{Sampled: true}}
}

func (s *traceStep) apply(x *Exchange) error {
	switch {
	case !x.chance(s.fraction):
		x.Plan.Trace = &s.no
		return nil
	case len(s.fields) == 0:
		x.Plan.Trace = &s.yes
	default:
		x.Plan.Trace = &Trace{Sampled: true, Attributes: s.policy.evaluate(x, s.fields)}
	}
	s.policy.recordAction(x)
	return nil
}

// fields returns the parser of a member that maps names to expressions of any type.
func (p *parser) fields(to *[]valueOf) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		return p.pairs(n, "names and expressions", func(key, value *yaml.Node) error {
			e, err := p.compile(value, expectedType{name: key.Value})
			*to = append(*to, valueOf{key.Value, e})
			return err
		})
	}
}

func (p *parser) log(n *yaml.Node) (rules, error) {
	r := &logRules{}
	m := members{"slow": p.duration(&r.slow), "codes": p.codes(&r.codes), "fields": p.fields(&r.fields)}
	if err := p.mapping(n, "log", m); err != nil {
		return nil, err
	}
	for _, f := range r.fields {
		r.readsRequest = r.readsRequest || f.expr.request
	}
	return r, nil
}

func (p *parser) sample(n *yaml.Node) (rules, error) {
	r := &sampleRules{}
	return r, p.fraction(&r.fraction)(n)
}

func (p *parser) trace(n *yaml.Node) (rules, error) {
	r := &traceRules{fraction: 1}
	return r, p.mapping(n, "trace", members{"fraction": p.fraction(&r.fraction), "attributes": p.fields(&r.fields)})
}
