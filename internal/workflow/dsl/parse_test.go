package dsl

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/itchyny/gojq"
)

const document = "document: {dsl: 1.0.0, namespace: test, name: under-test, version: 1.0.0}\n"

// TestRefused checks the problems of invalid workflows.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {``, `1:1: the file is empty: it must have document and do`},
		"no YAML":         {"a: [", `1:1: this is no YAML: did not find expected node content`},
		"no YAML, line 2": {"a: 1\nb: ]\nc: 3\n", `2:1: this is no YAML: did not find expected node content`},
		"no mapping":      {`[1]`, `1:1: a workflow must be a mapping with document, input, use, do, timeout, output and evaluate`},
		"no do":           {document, `1:1: the workflow has no do: it must list the tasks`},
		"no document":     {"do: [{a: {wait: PT1S}}]", `1:1: the workflow has no document: it must have document with dsl, namespace, name and version`},
		"document":        {"document: {dsl: 0.9.0, namespace: A_B, name: x, version: one}\ndo: [{a: {wait: PT1S}}]", "1:17: dsl 0.9.0 is not supported: 1.0.x is\n1:35: document.namespace \"A_B\" must be lower-case letters, digits and \"-\"\n1:58: document.version \"one\" must be a version such as \"0.1.0\""},
		"version number":  {"document: {dsl: 1.0.0, namespace: x, name: x, version: 1.0}\ndo: [{a: {wait: PT1S}}]", `1:56: document.version must be a text: write "1.0"`},
		"schedule":        {document + "schedule: {cron: x}\ndo: [{a: {wait: PT1S}}]", "2:1: a workflow: schedule is not supported: start the workflow by `routes`, `subjects` or `schedules` of the app's manifest"},
		"misspelt":        {document + "tiemout: {after: PT1S}\ndo: [{a: {wait: PT1S}}]", `2:1: a workflow has no "tiemout": did you mean "timeout"? There are: do, document, evaluate, input, output, timeout, use`},
		"evaluate":        {document + "evaluate: {language: js}\ndo: [{a: {wait: PT1S}}]", `2:22: evaluate.language js is not supported: jq is`},
		"twice":           {document + "do:\n  - a: {wait: PT1S}\ndo: []", `4:1: "do" is there twice`},
		"alias":           {document + "do:\n  - a: &x {wait: PT1S}\n  - b: *x", "4:8: aliases (*x) are not read: write it out, or use `use:`"},

		"task list":     {document + "do: {a: {wait: PT1S}}", `2:5: do must be a list of tasks, each with its name: "- NAME: {call: ...}"`},
		"indentation":   {document + "do:\n  - a:\n    call: f", `3:5: do: each entry must be one task with its name: "- NAME: {call: ...}"; what belongs to the task is indented below its name`},
		"task name":     {document + "do: [{a/b: {wait: PT1S}}]", `2:6: task "a/b": a name is made of letters, digits, "-", "_", "." and spaces, 63 at most`},
		"same name":     {document + "do: [{a: {wait: PT1S}}, {a: {wait: PT1S}}]", `2:25: task "a" is there twice: names in a list must differ`},
		"nothing":       {document + "do: [{a: {if: .x}}]", `2:10: task a does nothing: it must have one of call, do, emit, for, fork, listen, raise, run, set, switch, try and wait`},
		"two things":    {document + "do: [{a: {call: f, set: {x: 1}}}]", `2:10: task a has call and set: only one of them can be done`},
		"task key":      {document + "do: [{a: {call: f, wiht: {}}}]", `2:20: task a has no "wiht": did you mean "with"? There are: call, export, if, input, metadata, output, then, timeout, with`},
		"run":           {document + "do: [{a: {run: {shell: x}}}]", `2:17: run: shell is not supported: make a function of it and call that`},
		"two documents": {document + "do: [{a: {wait: PT1S}}]\n---\n" + document + "do: [{b: {wait: PT1S}}]", `3:1: a second document: a file has one workflow`},
		"schema":        {document + "do: [{a: {call: f, input: {schema: {}}}}]", `2:28: input: schema is not supported: check the data with an expression and raise, or in a function`},
		"then":          {document + "do: [{a: {call: f, then: c}}, {b: {do: [{c: {call: f}}]}}]", `2:26: then: c leads nowhere: there are continue, exit, end and the tasks beside it`},

		"http":         {document + "do: [{a: {call: http, with: {method: get}}}]", `2:29: endpoint is missing: it must be a URI`},
		"mcp":          {document + "do: [{a: {call: mcp, with: {method: tools/list}}}]", `2:17: call: mcp is not supported: call a function of the app that does it`},
		"no with":      {document + "do: [{a: {call: http}}]", `2:17: call: http has no with: it must say what is called`},
		"method":       {document + "do: [{a: {call: http, with: {method: \"g t\", endpoint: https://a.b}}}]", `2:29: with.method must be a method of HTTP, such as get`},
		"no URI":       {document + "do: [{a: {call: http, with: {method: get, endpoint: a.b/c}}}]", `2:53: endpoint "a.b/c": a URI begins with https:// or http://`},
		"URI's user":   {document + "do: [{a: {call: http, with: {method: get, endpoint: 'https://a:b@c'}}}]", `2:53: endpoint "https://a:b@c": credentials in a URI are not supported: write authentication`},
		"URI operator": {document + "do: [{a: {call: http, with: {method: get, endpoint: 'https://a.b/{+c}'}}}]", `2:53: endpoint "https://a.b/{+c}": {+c} is not supported: a variable is written {name}; others are put together by an expression`},
		"output":       {document + "do: [{a: {call: http, with: {method: get, endpoint: https://a.b, output: all}}}]", `2:74: with.output "all" is not supported: write one of content, raw and response`},
		"oauth2":       {document + "do: [{a: {call: http, with: {method: get, endpoint: {uri: https://a.b, authentication: {oauth2: {}}}}}}]", `2:89: authentication: oauth2 is not supported: write bearer with a token of a secret, or make the call in a function`},
		"no policy":    {document + "do: [{a: {call: http, with: {method: get, endpoint: {uri: https://a.b, authentication: mine}}}}]", `2:88: authentication "mine" is not in use.authentications: define it there with basic or bearer`},
		"openapi":      {document + "do: [{a: {call: openapi, with: {operationId: x}}}]", `2:32: with has no document: write {endpoint: URI of the OpenAPI document}`},
		"grpc":         {document + "do: [{a: {call: grpc, with: {method: M, service: {name: a.B, host: localhost, port: 1}}}}]", "2:68: with.service.host localhost is not supported: the services of the pool are called, with `host: pool`; a server outside of the pool joins with `outboard endpoints add`\n2:85: with.service.port is not supported: the pool finds the service by its name, and its policies say which callers may"},
		"run name":     {document + "do: [{a: {run: {workflow: {namespace: x, version: '1'}}}}]", "2:27: run.workflow has no name\n2:51: run.workflow.version \"1\" must be a version such as \"0.1.0\", or latest"},
		"catalog":      {document + "do: [{a: {call: \"f:1@default\"}}]", `2:17: call: f:1@default must be the name of a function of the app`},
		"with":         {document + "do: [{a: {call: f, with: {boddy: 1}}}]", `2:27: with has no "boddy": did you mean "body"? There are: body, entry, meta`},
		"meta":         {document + "do: [{a: {call: f, with: {meta: {x: [1]}}}}]", `2:37: with.meta.x must be a text`},
		"set":          {document + "do: [{a: {set: x}}]", `2:16: set must be a mapping of names and values, or one expression, "${ ... }"`},
		"wait":         {document + "do: [{a: {wait: soon}}]", `2:17: wait "soon" must be a duration of ISO 8601 in weeks, days, hours, minutes and seconds, such as "PT1M30S", or {minutes: 1, seconds: 30}`},
		"month":        {document + "do: [{a: {wait: P1M}}]", `2:17: wait "P1M" must be a duration of ISO 8601 in weeks, days, hours, minutes and seconds, such as "PT1M30S", or {minutes: 1, seconds: 30}`},
		"duration":     {document + "do: [{a: {wait: {weeks: 1}}}]", `2:18: wait has no "weeks": there are: days, hours, milliseconds, minutes, seconds`},
		"no time":      {document + "do: [{a: {call: f, timeout: {after: PT0S}}}]", `2:29: the timeout is zero: it must be longer, such as {after: {seconds: 10}}`},
		"named time":   {document + "do: [{a: {call: f, timeout: soon}}]", `2:29: timeout "soon" is not in use.timeouts: write {after: {seconds: 10}}, or define it there`},
		"for":          {document + "do: [{a: {for: {each: x}, do: [{b: {call: f}}]}}]", `2:16: for has no in: it must be an expression that makes a list, "${ .photos }"`},
		"for do":       {document + "do: [{a: {for: {in: .x}}}]", `2:16: for has no do: it must list the tasks of a round, beside for`},
		"variable":     {document + "do: [{a: {for: {in: .x, each: input}, do: [{b: {call: f}}]}}]", `2:31: for.each "input" must be a word of letters, digits and "_" that is not taken`},
		"fork":         {document + "do: [{a: {fork: {branches: [{b: {call: f, then: c}}, {c: {call: f}}]}}}]", `2:49: then: c: branches run beside each other, so one leads to continue, exit or end`},
		"switch":       {document + "do: [{a: {switch: [{b: {when: .x}}]}}]", `2:20: case b has no then: it must say where it leads`},
		"try":          {document + "do: [{a: {try: [{b: {call: f}}]}}]", `2:16: try has no catch: it must say what happens to errors, beside try`},
		"retry":        {document + "do: [{a: {try: [{b: {call: f}}], catch: {retry: x}}}]", `2:49: retry "x" is not in use.retries: define it there, or write {delay: {seconds: 1}}`},
		"back-off":     {document + "do: [{a: {try: [{b: {call: f}}], catch: {retry: {backoff: {cubic: {}}}}}}]", `2:60: retry.backoff has no "cubic": there are: constant, exponential, linear`},
		"jitter":       {document + "do: [{a: {try: [{b: {call: f}}], catch: {retry: {jitter: {from: PT2S, to: PT1S}}}}}]", `2:58: retry.jitter: to must not be less than from`},
		"error":        {document + "do: [{a: {raise: {error: {title: x}}}}]", "2:26: an error must have type\n2:26: an error must have status"},
		"named error":  {document + "do: [{a: {raise: {error: mine}}}]", `2:26: error "mine" is not in use.errors: define it there, or write {type: ..., status: ...}`},
		"filter":       {document + "do: [{a: {try: [{b: {call: f}}], catch: {errors: {with: {status: \"${ 1 }\"}}}}}]", `2:66: catch.errors.with.status must be a value: expressions belong into catch.when`},
		"emit":         {document + "do: [{a: {emit: {event: {with: {type: x}}}}}]", `2:32: emit.event.with has no source: every event has one`},
		"listen":       {document + "do: [{a: {listen: {to: {one: {with: {type: x}}, any: []}}}}]", `2:24: listen.to must have one of one, any and all`},
		"correlate":    {document + "do: [{a: {listen: {to: {one: {with: {type: x}, correlate: {}}}}}}]", `2:48: a filter: correlate is not supported: say in with which attributes an event must have; expressions may stand there`},
		"use":          {document + "use: {extensions: []}\ndo: [{a: {call: f}}]", `2:7: use: extensions is not supported: write the tasks where they are needed`},
		"part of text": {document + "do: [{a: {set: {x: \"Hello ${ .name }\"}}}]", `2:20: an expression must be the whole text: write "${ \"Hello \\(.name)\" }" for "Hello ${ .name }"`},

		"no jq":       {document + "do: [{a: {set: {x: \"${ .a | }\"}}}]", `2:20: the expression is no jq: unexpected EOF`},
		"no variable": {document + "do: [{a: {set: {x: \"${ $item }\"}}}]", `2:20: the expression does not compile: variable not defined: $item; there are $context, $input, $output, $task, $workflow, $runtime, and what loops and catch define`},
		"secrets":     {document + "do: [{a: {set: {x: \"${ $secrets.x }\"}}}]", `2:20: the expression does not compile: variable not defined: $secrets; functions have secrets, workflows do not`},
		"input":       {document + "do: [{a: {set: {x: \"${ input }\"}}}]", `2:20: the expression does not compile: input(s)/0 is not allowed; $input is the task's input`},
		"environment": {document + "do: [{a: {set: {x: \"${ $ENV.HOME }\"}}}]", `2:20: $ENV: an expression has no environment`},
		"import":      {document + "do: [{a: {set: {x: \"${ import \\\"x\\\" as x; 1 }\"}}}]", `2:20: an expression can import no modules`},
		"reserved":    {document + "do: [{a: {set: {x: \"${ _plus(1; 2) }\"}}}]", `2:20: function _plus: names that begin with "_" are reserved`},
		"not a text":  {document + "do: [{a: {if: [x], set: {x: 1}}}]", `2:15: if must be an expression, "${ ... }"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("flow.yaml", []byte(c.text))
			problems, ok := errors.AsType[Problems](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			got := strings.ReplaceAll(problems.Error(), "flow.yaml:", "")
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

// Violations of the rules are reported with all other problems, once for each function.
func TestRules(t *testing.T) {
	rules := Rules{Function: func(name string) string {
		if name == "f" {
			return ""
		}
		return "no " + name
	}}
	rules.Host = func(scheme, host string) string { return "no " + scheme + " " + host }
	rules.Secret = func(name string) string { return "no secret " + name }
	const good = document + "do:\n  - a: {call: f}\n"
	if w, err := ParseBy(rules, "flow.yaml", []byte(good)); err != nil || len(w.Do.List) != 1 {
		t.Errorf("got %v, %v", w, err)
	}
	const bad = good + "  - b: {call: g, wiht: {}}\n  - c: {for: {in: .x}, do: [{d: {call: h, then: z}}]}\n  - e: {call: g}\n  - i: {wait: soon}\n" +
		"  - j: {call: http, with: {method: get, endpoint: {uri: 'https://a.b:1/{c}', authentication: {basic: {use: s}}}}}\n" +
		"  - k: {call: http, with: {method: get, endpoint: 'https://{host}/c'}}\n"
	_, err := ParseBy(rules, "flow.yaml", []byte(bad))
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d: %.9s", p.Line, p.Text))
	}
	if diff := cmp.Diff(got, []string{"4: no g", "4: task b ha", "5: no h", "5: then: z l", `7: wait "soo`, "8: no https ", "8: no secret"}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

// TestAccepted parses the workflows of testdata. That the reference implementation of the
// DSL accepts them as well is checked by test/workflow.
func TestAccepted(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no workflows", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(file, text); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParsed(t *testing.T) {
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w, err := Parse("everything.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if w.Name != "everything" || w.Timeout != time.Hour {
		t.Errorf("got %s, %s", w.Name, w.Timeout)
	}
	var references []string
	w.Do.walk(func(task *Task) { references = append(references, task.Reference) })
	for _, want := range []string{"/do/0/decode", "/do/3/loop/do/0/one", "/do/4/both/fork/branches/1/b", "/do/5/careful/try/0/risky", "/do/5/careful/catch/do/0/sorry"} {
		if !strings.Contains(strings.Join(references, "\n"), want) {
			t.Errorf("no task %s in %q", want, references)
		}
	}
	if diff := cmp.Diff(w.Functions(), []Use{{"images", 22}, {"f", 50}, {"g", 62}}); diff != "" {
		t.Errorf("functions (-got +want):\n%s", diff)
	}
	retry := w.Do.List[5].Try.Retry
	if retry.Backoff != Exponential || retry.Delay != time.Second || retry.Attempts != 5 || retry.AttemptTimeout != 90*time.Second ||
		retry.JitterTo != 500*time.Millisecond || retry.Limit != 24*time.Hour {
		t.Errorf("got %+v", retry)
	}
	if at := w.Definition["document"].(map[string]any)["name"]; at != "everything" {
		t.Errorf("definition: %v", at)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"PT1S": time.Second, "P1D": 24 * time.Hour, "P2W": 14 * 24 * time.Hour, "PT1M30.5S": 90500 * time.Millisecond,
		"P1DT2H3M4S": 26*time.Hour + 3*time.Minute + 4*time.Second, "P": -1, "PT": -1, "P1DT": -1, "P1Y": -1, "-PT1S": -1, "PT999999999999H": -1,
	} {
		got, ok := parseISO(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// FuzzParse searches for files on which the parser panics.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(document + "do: [{a: {set: {x: \"${ . + 1 }\"}}}]"))
	f.Add([]byte("? [a]\n: !!binary x\n<<: {x: 1}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := Parse("fuzz.yaml", text)
		if (w == nil) != (err != nil) {
			t.Fatal("neither a workflow nor a problem")
		}
		if err != nil {
			if problems, ok := errors.AsType[Problems](err); !ok || len(problems) == 0 || problems[0].Line < 1 {
				t.Fatalf("no problem but %v", err)
			}
			return
		}
		w.Functions()
		w.Do.walk(func(task *Task) {
			if task.Reference == "" || task.kinds() != 1 {
				t.Errorf("task %+v", task)
			}
		})
	})
}

// kinds returns the number of kinds that a task has.
func (t *Task) kinds() int {
	n := 0
	for _, set := range []bool{
		t.Call != nil, t.Do != nil, t.Emit != nil, t.For != nil, t.Fork != nil, t.Listen != nil, t.Raise != nil,
		t.Run != nil, t.Set != nil, t.Switch != nil, t.Try != nil, t.Wait != nil,
	} {
		if set {
			n++
		}
	}
	return n
}

func data(t testing.TB, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func BenchmarkParse(b *testing.B) {
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Parse("everything.yaml", text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEval(b *testing.B) {
	for _, text := range []string{`.a`, `{a, b: (.b + 1)}`, `.list | map(. * 2) | add`} {
		b.Run(text, func(b *testing.B) {
			e, err := compile(text, nil)
			if err != nil {
				b.Fatal(err)
			}
			input := data(b, `{"a": 1, "b": 2, "list": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}`)
			for b.Loop() {
				if _, err := e.Eval(Scope{Data: input, Now: noon}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLargeNumbers checks that numbers beyond the range of YAML's floats stay numbers, and that whole
// numbers keep all of their digits.
func TestLargeNumbers(t *testing.T) {
	const numbers = `x: 1e400, y: -2E+500, z: "1e400", n: 18446744073709551615, o: -98765432109876543210, p: 0xFFFFFFFFFFFFFFFF`
	w, err := Parse("t.yaml", []byte(document+`do: [{a: {set: {`+numbers+`, e: "${ 1e400 > 1e308 }"}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	v, err := w.Do.List[0].Set.Eval(Scope{Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	text, err := gojq.Marshal(v)
	if want := `{"e":true,"n":18446744073709551615,"o":-98765432109876543210,"p":18446744073709551615,"x":1e400,"y":-2E+500,"z":"1e400"}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}
