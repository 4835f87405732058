package process

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

func TestParseServers(t *testing.T) {
	got, err := parseServers("s.yaml", []byte("llama:\n  kind: llama-server\n  command: [llama-server, --port, '{port}']\nfar:\n  kind: vllm\n  url: http://10.0.0.1:8000\n"))
	want := map[string]Server{
		"llama": {Kind: "llama-server", Command: []string{"llama-server", "--port", "{port}"}}, "far": {Kind: "vllm", URL: "http://10.0.0.1:8000"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for text, reason := range map[string]string{
		"x: {kind: tgi, url: http://a}":                          "kind",
		"x: {kind: vllm}":                                        "either a command or a url",
		"x: {kind: vllm, url: http://a, command: [b, '{port}']}": "either a command or a url",
		"x: {kind: vllm, command: [vllm]}":                       "{port}",
		"x: {kind: vllm, url: a}":                                "url",
		"x: {kind: vllm, url: 'file:///etc/passwd'}":             "url",
		"x: {kind: vllm, port: 1}":                               "port",
		"x: {kind: vllm, url: http://a, model: m}":               "needs no name",
		"x: {kind: oip, url: http://a:1}":                        "grpc://",
		"x: {kind: oip, url: grpc://a}":                          "port of gRPC",
		"x: {kind: oip, url: grpc://a:1/v2}":                     "without a path",
		"x: {kind: oip, url: grpc://a:1, model: ../m}":           "without /",
		"- x":     "s.yaml:1: want servers by their names",
		"x: vllm": "s.yaml:1: vllm: want settings, such as",
		"x:\n  kind: vllm\n  command: vllm\n  environment: [a]\n": "s.yaml:3: vllm: want a list, such as `[vllm, --port, \"{port}\"]`\ns.yaml:4: want variables",
		"x:\n  kinds: vllm\n": "s.yaml:2: field kinds: there is no such setting",
	} {
		if _, err := parseServers("s.yaml", []byte(text)); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", text, err, reason)
		}
	}
}

func TestCommandAndEnvironment(t *testing.T) {
	s := Server{Command: []string{"run", "--model={model}", "{port}", "{context}/{sequences}"}, Environment: map[string]string{"A": "b{port2}"}}
	o := engine.Options{Device: "cuda/1", Context: 512, Sequences: 4}
	values, err := s.placeholders([]int{99, 100, 101}, engine.Source{Path: "/m/x"}, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"run", "--model=/m/x", "99", "512/4"}, s.command(values)); diff != "" {
		t.Error(diff)
	}
	got := map[string]bool{}
	for _, v := range s.environ(values, o) {
		got[v] = true
	}
	if !got["A=b100"] || !got["CUDA_VISIBLE_DEVICES=1"] || !got["ROCR_VISIBLE_DEVICES="] {
		t.Errorf("%v", got)
	}
}

// A server that ends is told with the reason; it must not be waited for.
func TestServerThatEnds(t *testing.T) {
	e := &Engine{Servers: map[string]Server{"x": {Kind: "vllm", Command: []string{"sh", "-c", "exit 3", "{port}"}}}, Start: start}
	_, err := e.Load(t.Context(), engine.Source{}, engine.Options{Server: "x"})
	if outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
	if _, err := e.Load(t.Context(), engine.Source{}, engine.Options{Server: "none"}); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("an unknown server: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Servers["x"] = Server{Kind: "vllm", Command: []string{"sh", "-c", "sleep 1000", "{port}"}}
	if _, err := e.Load(ctx, engine.Source{}, engine.Options{Server: "x"}); err == nil {
		t.Error("a load that was cancelled succeeded")
	}
}

func TestParseMetrics(t *testing.T) {
	got := parseMetrics(strings.NewReader("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 2.0\nvllm:num_requests_waiting{a=\"b c\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 4\nnonsense\nvllm:generation_tokens_total 1e3\nvllm:kv_cache_usage_perc 0.25\nvllm:kv_cache_usage_perc NaN\n"))
	if got.Running != 2 || got.Waiting != 7 || got.GeneratedTokens != 1000 || got.StateUsage != 0.25 {
		t.Errorf("%+v", got)
	}
}

// Events come from a server that may send anything.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"content":"a","tokens":[1],"stop":false,"completion_probabilities":[{"id":1,"logprob":-0.5,"top_logprobs":[{"id":1}]}]}`))
	f.Add([]byte(`{"content":"","tokens":[],"stop":true,"stop_type":"limit"}`))
	f.Add([]byte(`{"choices":[{"text":"a","token_ids":[1,2],"logprobs":{"token_logprobs":[-1],"top_logprobs":[{"a":-1}]},"finish_reason":"stop"}]}`))
	f.Add([]byte(`{"error":{"message":"no"}}`))
	f.Add([]byte(`{"text":"a","output_ids":[1],"meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":1,"output_token_logprobs":[[-0.5,1,null]],"output_top_logprobs":[[[-0.5,1,"a"]]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, d := range dialects {
			a := &answer{limit: 2}
			tokens, err := d.event(&textModel{}, a, data)
			if err != nil {
				continue
			}
			for _, token := range tokens {
				a.add(token)
			}
			if a.usage.GeneratedTokens > len(tokens) {
				t.Errorf("%s: %d tokens of %d", name, a.usage.GeneratedTokens, len(tokens))
			}
		}
	})
}

// stub is a started server that runs in this process.
type stub struct {
	end  func()
	done chan error
}

func (s *stub) Kill()       { s.end() }
func (s *stub) Wait() error { return <-s.done }

// A server whose port another process has got meanwhile is started again with another port, also when
// that process answers nothing.
func TestPortThatAnotherProcessHas(t *testing.T) {
	var thief net.Listener
	starts := 0
	e := &Engine{Servers: map[string]Server{"x": {Kind: "vllm", Command: []string{"{port}"}}}, Exited: func(err error) { t.Errorf("the engine ends: %v", err) }}
	e.Start = func(command, _ []string) (Process, error) {
		l, err := net.Listen("tcp", "127.0.0.1:"+command[0])
		if err != nil {
			return nil, err
		}
		if starts++; starts == 1 {
			thief = l
			failed := &stub{end: func() {}, done: make(chan error, 1)}
			failed.done <- errors.New("address already in use")
			return failed, nil
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"data":[{"id":"m","max_model_len":8}]}`)
		})}
		running := &stub{end: func() { _ = server.Close() }, done: make(chan error, 1)}
		go func() { running.done <- server.Serve(l) }()
		return running, nil
	}
	m, err := e.Load(t.Context(), engine.Source{}, engine.Options{Server: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if starts != 2 || m.Info().Context != 8 {
		t.Errorf("%d starts, %+v", starts, m.Info())
	}
	if err := errors.Join(m.Close(), thief.Close()); err != nil {
		t.Error(err)
	}
}
