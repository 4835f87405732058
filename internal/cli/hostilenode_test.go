package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/cli"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// hostileText has what a terminal obeys (C0, C1, DEL), what reorders the text around it, and
// separators of lines.
const hostileText = "app/a\x1b]0;title\x07\u009b2J\u202e\x7f\u2028b"

// hostileAnswers are the answers of a node of which another node, tenant or program chose every
// text.
var hostileAnswers = map[string]any{
	"GET /v1/status": client.Status{}, "GET /v1/nodes": []outboard.Node{}, "GET /v1/devices": []client.Device{},
	"GET /v1/network": []client.Link{}, "GET /v1/network/nearest": []client.Link{}, "GET /v1/leases": []outboard.Lease{},
	"GET /v1/sessions": []client.Session{}, "GET /v1/jobs": []client.Job{}, "GET /v1/jobs/{id}": client.Job{},
	"GET /v1/jobs/{id}/logs": jobLine{}, "GET /v1/data": []client.Dataset{}, "GET /v1/data/{name}": client.Dataset{},
	"GET /v1/apps": []client.App{}, "GET /v1/apps/{app}/nodes": []client.AppNode{}, "GET /v1/functions": []client.Function{},
	"GET /v1/workflows": []client.Workflow{}, "GET /v1/executions": []client.Execution{},
	"GET /v1/apps/{app}/executions/{id}": client.Execution{}, "GET /v1/apps/{app}/logs": client.LogLine{},
	"GET /v1/artifacts": []client.Artifact{}, "GET /v1/models": []client.Model{}, "GET /v1/models/{model}": client.ModelDetails{},
	"GET /v1/model-keys": []client.ModelKey{}, "GET /v1/services": []client.Service{}, "GET /v1/endpoints": []client.Endpoint{},
	"GET /v1/policies": client.Policies{}, "GET /v1/calls": []client.Calls{},
}

// jobLine is a client.JobEvent without the fields of other events.
type jobLine struct {
	Line client.JobLine `json:"line"`
}

// readCommands are the commands that print what the node answers.
var readCommands = []string{
	"status", "nodes", "devices", "network", "leases", "sessions", "jobs", "jobs show job-1", "logs job-1", "data", "apps",
	"functions", "workflows", "executions", "executions show app/1", "logs app", "modules", "models", "models show m", "keys", "services",
	"endpoints", "policies", "calls",
}

// fill sets every text, and one element of every list and map, of a value.
func fill(v reflect.Value, depth int) {
	if _, ok := reflect.TypeAssert[time.Time](v); ok {
		v.Set(reflect.ValueOf(time.Unix(1, 0)))
		return
	}
	switch v.Kind() { //nolint:exhaustive // the others have no text
	case reflect.String:
		v.SetString(hostileText)
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint64, reflect.Uint32, reflect.Uint16:
		if v.CanInt() {
			v.SetInt(1)
		} else {
			v.SetUint(1)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field, depth+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		fillSlice(v, depth)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf(hostileText))
	}
}

func fillSlice(v reflect.Value, depth int) {
	if _, ok := reflect.TypeAssert[json.RawMessage](v); ok {
		text, _ := json.Marshal(hostileText)
		v.SetBytes(text)
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes([]byte(hostileText))
		return
	}
	if depth > 6 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	fill(v.Index(0), depth+1)
}

// startHostileNode starts a node that answers all requests with hostile texts.
func startHostileNode(t *testing.T) *testNode {
	t.Helper()
	data, err := os.MkdirTemp("", "outboard-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	l, err := unixsock.Listen(filepath.Join(data, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, of := range hostileAnswers {
		value := reflect.New(reflect.TypeOf(of)).Elem()
		fill(value, 0)
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(value.Interface()) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(client.FailureOf(outboard.Errorf(outboard.Conflict, hostileText, "%s", hostileText)))
	})
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	return &testNode{data: data}
}

// Commands print nothing that a terminal obeys, whatever others have named their things, as text
// and as JSON.
func TestReadCommandsAreClean(t *testing.T) {
	n := startHostileNode(t)
	for _, command := range readCommands {
		for _, output := range []string{"text", "json"} {
			t.Run(command+" -o "+output, func(t *testing.T) {
				r := n.run(t, "", append(strings.Fields(command), "-o", output)...)
				if r.status != 0 && command != "status" { // it has problems to report
					t.Errorf("status %d: %q", r.status, r.stderr)
				}
				checkClean(t, "standard output", r.stdout)
				checkClean(t, "standard error", r.stderr)
			})
		}
	}
}

// A shell inserts the words of completions into command lines.
func TestCompletionsAreClean(t *testing.T) {
	n := startHostileNode(t)
	for _, command := range []string{
		"apps remove", "invoke", "executions show", "sessions kill", "nodes remove", "models show", "jobs cancel",
		"datasets remove", "keys revoke", "endpoints remove", "calls --service", "run --device",
	} {
		r := n.run(t, "", append(append([]string{"__complete"}, strings.Fields(command)...), "")...)
		if r.status != 0 || !strings.Contains(r.stdout, "\n:") && !strings.HasPrefix(r.stdout, ":") {
			t.Errorf("%s: status %d, %q", command, r.status, r.stdout)
		}
		checkClean(t, command, r.stdout)
	}
}

func TestCompletionWriter(t *testing.T) {
	var out strings.Builder
	text := "ok\n--flag\tdescribes it\nnode=a\nmemory>=\n$(touch x)\n`x`\n; x\na b\nit's\nesc\x1bx\nid\tof \x1b[2J\tb\n\xff\n:4\n"
	if n, err := cli.NewCompletionWriter(&out).Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("wrote %d of %d bytes, %v", n, len(text), err)
	}
	if want := "ok\n--flag\tdescribes it\nnode=a\nmemory>=\nid\tof \ufffd[2J b\n:4\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestRefusalsAreClean(t *testing.T) {
	n := startHostileNode(t)
	for _, command := range []string{"apps remove app", "keys revoke k", "token", "run -- true", "jobs cancel job-1", "nodes remove n", "policies rollback", "publish s"} {
		r := n.run(t, "", strings.Fields(command)...)
		if r.status == 0 || !strings.Contains(r.stderr, "title") {
			t.Errorf("%s: status %d, %q", command, r.status, r.stderr)
		}
		checkClean(t, command, r.stdout+r.stderr)
	}
}

func checkClean(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			t.Errorf("%s has %q: %q", what, r, text[max(0, i-60):min(len(text), i+20)])
			return
		}
	}
}
