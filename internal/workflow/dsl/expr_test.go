package dsl

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/itchyny/gojq"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// untimed returns a budget that only counts: a busy machine must not end a test's evaluation.
func untimed() *Budget { return &Budget{end: time.Now().Add(time.Hour)} }

func eval(t testing.TB, text string, input any) string {
	t.Helper()
	e, err := compile(text, []string{"item"})
	if err != nil {
		return "compile: " + err.Error()
	}
	v, err := e.Eval(Scope{
		Data: input, Context: map[string]any{"c": 1}, Input: "in", Output: "out", Now: noon,
		Locals: (*Locals)(nil).With("item", 7), Budget: untimed(),
	})
	if err != nil {
		return "error: " + err.Error()
	}
	out, err := gojq.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A small result does not keep the large value in memory of which it is a part.
func TestResultsAreNotShared(t *testing.T) {
	list := make([]any, 1000)
	for i := range list {
		list[i] = "element " + strconv.Itoa(i)
	}
	text := strings.Repeat("word, ", 1000)
	within := func(v any) bool {
		switch v := v.(type) {
		case string:
			from, at := uintptr(unsafe.Pointer(unsafe.StringData(text))), uintptr(unsafe.Pointer(unsafe.StringData(v)))
			return at >= from && at < from+uintptr(len(text))
		case []any:
			from, at := uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(&v[0]))
			return at >= from && at < uintptr(unsafe.Pointer(&list[len(list)-1]))
		}
		return false
	}
	for _, expression := range []string{
		`.list[0:1]`, `.list[:-900]`, `.list[-2:]`, `{a: .list[3:5]} | .a`, `.list[{start: 1, end: 3}]`, `getpath(["list", {start: 1, end: 3}])`,
		`.text | split(", ")[3]`, `.text / ", " | .[3]`, `.text | ltrimstr("word, ")`, `.text | rtrim`, `.text | [match("w.rd").string][0]`,
		`.text | capture("(?<first>w.rd)").first`, `def f: .list[0:2]; f`,
	} {
		e, err := compile(expression, nil)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		v, err := e.Eval(Scope{Data: map[string]any{"list": list, "text": text}, Budget: untimed()})
		if err != nil || within(v) {
			t.Errorf("%s: %v, a part of its input", expression, err)
		}
	}
	// Others hand values on as they are.
	for _, expression := range []string{`.list`, `.list[0]`, `.text`, `{a: .list} | .a`, `.["list"]`} {
		if e, err := compile(expression, nil); err != nil || e.slicing {
			t.Errorf("%s: %v, copies its result", expression, err)
		}
	}
}

// TestGuarded checks that the guards do not change the results of expressions.
func TestGuarded(t *testing.T) {
	input := data(t, `{"a": [1, 2, {"b": "x"}], "s": "text", "n": 12345678901234567890}`)
	for text, want := range map[string]string{
		`.a[0] + 1`:                                       `2`,
		`.a[2].b + .s`:                                    `"xtext"`,
		`[.a[:2][] + (1, 10)]`:                            `[2,3,11,12]`,
		`[(1, 2) * (3, 4)]`:                               `[3,6,4,8]`,
		`"ab" * 3`:                                        `"ababab"`,
		`{a: {b: 1}} * {a: {c: 2}}`:                       `{"a":{"b":1,"c":2}}`,
		`.a[0] += 5 | .a`:                                 `[6,2,{"b":"x"}]`,
		`.a[:2] |= map(. * 2) | .a`:                       `[2,4,{"b":"x"}]`,
		`.n *= 1 | .n`:                                    `12345678901234567890`,
		`.x.y = 3 | .x`:                                   `{"y":3}`,
		`.a |= length`:                                    `{"a":3,"n":12345678901234567890,"s":"text"}`,
		`[.[]?] | add(.[0][0], .[0][1])`:                  `3`,
		`[1, 2, 3] | add`:                                 `6`,
		`[] | add`:                                        `null`,
		`["a", 1, null, "b"] | join("-")`:                 `"a-1--b"`,
		`[] | join("-")`:                                  `""`,
		`"\(.s) and \(.a[0] + 1)"`:                        `"text and 2"`,
		`@base64 "x\(.s)"`:                                `"xdGV4dA=="`,
		`.s | @json`:                                      `"\"text\""`,
		`[.a[] | tojson]`:                                 `["1","2","{\"b\":\"x\"}"]`,
		`. as {a: [$x, $y]} | $x + $y`:                    `3`,
		`reduce .a[:2][] as $v (0; . + $v)`:               `3`,
		`[foreach (1, 2, 3) as $v (0; . + $v)]`:           `[1,3,6]`,
		`def f(g): g + g; f(.s)`:                          `"texttext"`,
		`[paths(type == "number")] | length`:              `3`,
		`to_entries | map(.key) | sort`:                   `["a","n","s"]`,
		`path(.a[1])`:                                     `["a",1]`,
		`[limit(3; range(10; 20))]`:                       `[10,11,12]`,
		`try error("x") catch . + "y"`:                    `"xy"`,
		`.s | test("^t")`:                                 `true`,
		`.s | gsub("t"; "d")`:                             `"dexd"`,
		`[.s | splits("x")]`:                              `["te","t"]`,
		`$context.c + $item`:                              `8`,
		`$input + $output`:                                `"inout"`,
		`now | todate`:                                    `"2026-11-20T12:00:00Z"`,
		`now | localtime | mktime | . == (now)`:           `true`,
		`env | length`:                                    `error: an expression has no environment`,
		`.a | map(select(type == "number")) | any(. > 1)`: `true`,
		`[..] | length`:                                   `8`,
		`setpath(["a", 0]; 9) | .a[0]`:                    `9`,
		`getpath(["a", 2, "b"])`:                          `"x"`,
		`if .a then "y" else "n" end`:                     `"y"`,
		`[.a | .[-1:][]]`:                                 `[{"b":"x"}]`,
		`{(.s): .a[0], "k": 2, $item}`:                    `{"item":7,"k":2,"text":1}`,
		`label $out | 1, break $out`:                      `1`,
		`-(.a[0]) + 3`:                                    `2`,
		`1, 2`:                                            `error: the expression has several results: put them into an array, [ ... ]`,
		`empty`:                                           `error: the expression has no result`,
		`halt`:                                            `error: error: halt: use raise`,
		`.s | ltrimstr("x") | ascii_upcase | ascii_downcase`: `"text"`,

		`[.a[:2][] / 2]`:            `[0.5,1]`,
		`"a,b" / ","`:               `["a","b"]`,
		`.s / "x"`:                  `["te","t"]`,
		`.a[0] /= 2 | .a[0]`:        `0.5`,
		`[[1, 2], [3]] | transpose`: `[[1,3],[2,null]]`,
		`[fromstream([["x"], 3], [["y", 0], 4], [["y", 0]], [["y"]])]`: `[{"x":3,"y":[4]}]`,
		`[tostream] | fromstream(.[]) | .s`:                            `"text"`,
		`pick(.a[1]) | .a`:                                             `[null,2]`,
		`.a[[2]]`:                                                      `[1]`,
		`.a[range(2)] = 7 | .a`:                                        `[7,7,{"b":"x"}]`,
		`.a[1, 4] += 1 | .a`:                                           `[1,3,{"b":"x"},null,1]`,
		`(.a | .[2:]) = [5] | .a`:                                      `[1,2,5]`,
		`(.. | numbers) |= . + 1 | .a`:                                 `[2,3,{"b":"x"}]`,
		`(.a[] | select(type == "number")) = 0 | .a`:                   `[0,0,{"b":"x"}]`,
		`(.x // .a)[0] = 3 | .a`:                                       `[3,2,{"b":"x"}]`,
		`.a |= (.[0], .[1])`:                                           `{"a":1,"n":12345678901234567890,"s":"text"}`,
		`(.a[] | select(. == 1)) |= empty | .a`:                        `[2,{"b":"x"}]`,
		`getpath(["x", 5, "y"])`:                                       `null`,
		`jn(1; 0) + yn(0; 1) | . < 1`:                                  `true`,
		`.s | test("T")`:                                               `false`,
		`.s | test("T"; "i")`:                                          `true`,
		`[.s | match("t"; "g").offset]`:                                `[0,3]`,
		`"añb" | match("(?<x>ñ)(y)?") | [.offset, .length, .captures[0].name, .captures[1].string]`: `[1,1,"x",null]`,
		`.s | capture("(?<first>.)(?<second>.)")`:                                                   `{"first":"t","second":"e"}`,
		`[.s | scan("[et]")]`:                `["t","e","t"]`,
		`[.s | scan("(.)(.)")]`:              `[["t","e"],["x","t"]]`,
		`[.s | scan("T"; "i")]`:              `["t","t"]`,
		`.s | split("e|x"; null)`:            `["t","","t"]`,
		`.s | split("x")`:                    `["te","t"]`,
		`.s | sub("(?<c>[et])"; "<\(.c)>")`:  `"<t>ext"`,
		`.s | gsub("(?<c>[et])"; "<\(.c)>")`: `"<t><e>x<t>"`,
		`[.s | sub("t"; "1", "2")]`:          `["1ext","2ext"]`,
		`[.s | gsub("t"; "1", "2")]`:         `["1ex1","2ex2"]`,
		`.s | gsub("q"; "1")`:                `"text"`,
		`.s | gsub(""; "-")`:                 `"-t-e-x-t-"`,
		`.s | gsub("^"; "-")`:                `"-text"`,
		`"ab cd" | gsub("\\b"; "|")`:         `"|ab| |cd|"`,
		`"ab\ncd" | gsub("(?m)^"; "> ")`:     `"> ab\n> cd"`,
		`"a.b" | [splits("\\.")]`:            `["a","b"]`,
		`"aaa" | [match("a*?"; "g").length]`: `[0,0,0,0]`,
		`1 | test("x")`:                      `error: test("x"; null) cannot be applied to: number (1)`,
		`"x" | test("(")`:                    "error: invalid regular expression \"(\": error parsing regexp: missing closing ): `(`",
		`"x" | test("x"; "q")`:               `error: unsupported regular expression flag: "q"`,
		`def test(f): f; test(3)`:            `3`,
	} {
		got := eval(t, text, input)
		got = strings.Replace(got, "error: error: an", "error: an", 1)
		if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// TestBounded evaluates expressions that would exhaust time or memory.
func TestBounded(t *testing.T) {
	const steps, weight, data = "takes too many steps", "more than 4 MiB", "looks at too much data"
	for text, want := range map[string]string{
		`last(repeat(1))`:                              steps,
		`last(range(1e12))`:                            steps,
		`def f: f; f`:                                  steps,
		`[range(1e9)]`:                                 steps,
		`reduce range(60) as $i ("x"; . + .)`:          weight,
		`reduce range(60) as $i ("x"; . * 2)`:          weight,
		`reduce range(60) as $i ([1]; . + .)`:          weight,
		`reduce range(60) as $i ("x"; . += .)`:         weight,
		`"x" * 1e9`:                                    weight,
		`1e9 * "x"`:                                    weight,
		`"" * 1e9`:                                     weight,
		`reduce range(60) as $i (1; [., .]) | tojson`:  weight,
		`reduce range(60) as $i (1; {a: ., b: .})`:     weight,
		`reduce range(60) as $i ({}; .a = . | .b = .)`: weight,
		`reduce range(60) as $i ({}; .a |= . | setpath(["a"]; .) | setpath(["b"]; .))`: weight,
		`reduce range(90) as $i ("xxxxx"; @base64)`:                                    weight,
		`reduce range(90) as $i ("\""; tojson)`:                                        weight,
		`reduce range(60) as $i ("x"; "\(.)\(.)")`:                                     weight,
		`reduce range(60) as $i ("x"; [., .] | add)`:                                   weight,
		`reduce range(60) as $i ("x"; . as $x | [., .] | join($x))`:                    weight,
		`[range(60)] | reduce .[] as $i ("x"; gsub("x"; "xx"))`:                        steps,
		`.[1e8] = 1`:                                        "65536 elements",
		`setpath([1e8]; 1)`:                                 "65536 elements",
		`.[70000:] = [1]`:                                   "65536 elements",
		`[.[99999]] | .[0][1e9] = 1`:                        "65536 elements",
		`pick(.[1e8])`:                                      "65536 elements",
		`reduce range(1e5) as $i (.; [.])`:                  weight,
		`reduce range(3000) as $i (10; . * .)`:              "4096 bits",
		`("7" * 10000) | tonumber`:                          "1300 characters",
		`("7" * 10000) | fromjson | . == 1`:                 "1300 characters",
		strings.Repeat("[", 600) + strings.Repeat("]", 600): "brackets",
		`[limit(1000; repeat([range(1000)]))]`:              steps,

		`[range(20000)] as $a | $a - ($a | map(. + 20000))`:                          data,
		`("x" * 1000000) as $s | reduce range(1000) as $i (0; . + ($s | length))`:    data,
		`("x" * 1000000) as $s | [limit(100000; repeat($s == $s))] | length`:         data,
		`("x" * 1000000) as $s | [limit(100000; repeat($s | test("y")))] | length`:   data,
		`("ab" * 500000) | gsub("a"; "b")`:                                           data,
		`("ab" * 500000) | [splits("a")] | length`:                                   data,
		`[range(30000)] as $a | [limit(1000; repeat($a | sort))] | length`:           data,
		`[range(20000)] as $a | [$a[] | tostring] as $b | $b | contains($b)`:         data,
		`("x" * 100000) as $s | reduce range(100000) as $i (0; ($s | indices("y")))`: data,

		// One step of the interpreter each, or few.
		`[range(1000) | "x" * 4000000] | length`:                             data,
		`("x" * 4000000) as $s | [range(1000) | $s / ""]`:                    weight,
		`[range(20000)] as $a | [range(20000) | []] | .[0] = $a | transpose`: weight,
		`fromstream([[536870000], 1], [[536870000], 2], [[0]])`:              "65536 elements",
		`fromstream(range(1000) | [[., 65000], 1])`:                          weight,
		`[range(1000) | 65000] as $p | setpath($p; 1)`:                       weight,
		`[range(1000) | 65000] as $p | pick(getpath($p))`:                    weight,
		`pick(.[range(1000)][65000])`:                                        weight,
		`.` + strings.Repeat("[65000]", 1000) + ` = 1`:                       weight,
		`def f($n): if $n > 0 then .[65000] | f($n - 1) end; f(300) = 1`:     weight,
		`.[range(60000)][65000] = 1`:                                         data,
		`[range(60000) | null] | .[][65000] = 1`:                             data,
		`[range(60000) | null] | .[][65000] += 1`:                            data,
		`jn(1e15; 1e16)`:  "order of 1000",
		`yn(-1e15; 1e16)`: "order of 1000",
		`[range(20000) | 0] as $a | [limit(100; repeat($a[$a[:10000]]))] | length`:  data,
		`reduce range(400) as $i ([range(50000)]; [.]) | [path(..)] | length`:       data,
		`("a" * 1000000) | test("(a?){1000}b{1000}")`:                               data,
		`("a" * 100000) | test("` + strings.Repeat("a{0,1000}", 20) + `b")`:         "regular expression is too large",
		`("a" * 100000) | test("` + strings.Repeat("()", 200) + `b")`:               "regular expression is too large",
		`"x" | test("a" * 100000)`:                                                  "regular expression is too large",
		`[range(100000) | tostring as $r | "x" | test($r + "{500}")]`:               data,
		`("a" * 400000) | [match("a"; "g")] | length`:                               "matches too often",
		`("a" * 20000) | [match("` + strings.Repeat("()", 90) + `"; "g")] | length`: "matches too often",
		`("a" * 100000) | [match("a.*z|a"; "g")] | length`:                          data,
		`("a" * 1000) | gsub("a"; "x" * 1000000)`:                                   weight,
	} {
		if got := eval(t, text, nil); !strings.Contains(got, want) {
			t.Errorf("%.60s: got %.200s, want %s", text, got, want)
		}
	}
}

// An evaluation takes the same number of steps each time, so that a replay has the same outcome.
func TestStepsAreSame(t *testing.T) {
	e, err := compile(`[range(100)] | map(. + 1) | add`, nil)
	if err != nil {
		t.Fatal(err)
	}
	used := func() int {
		b := untimed()
		s := &steps{left: maxEvalSteps, budget: b}
		iter := e.code.RunWithContext(s, nil, nil, nil, nil, nil, nil, nil, 0.0, b)
		if _, err := singleResult(iter); err != nil {
			t.Fatal(err)
		}
		return s.left
	}
	if first := used(); first != used() || first == maxEvalSteps {
		t.Errorf("%d steps are left, and then %d", first, used())
	}
}

func TestTemplate(t *testing.T) {
	w, err := Parse("t.yaml", []byte(document+`do: [{a: {set: {x: "${ .n }", y: [1, "${ $input }", {z: "${ [.n] }"}], w: text}}}, {b: {set: {x: 1}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	v, err := w.Do.List[0].Set.Eval(Scope{Data: map[string]any{"n": 3}, Input: "in"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"x": 3, "y": []any{1, "in", map[string]any{"z": []any{3}}}, "w": "text"}
	if diff := cmp.Diff(v, any(want)); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if _, fixed := w.Do.List[0].Set.Fixed(); fixed {
		t.Error("a value with expressions is fixed")
	}
	if v, fixed := w.Do.List[1].Set.Fixed(); !fixed || fmt.Sprint(v) != "map[x:1]" {
		t.Error("a value without expressions is not fixed")
	}
	var none *Template
	if v, err := none.Eval(Scope{Data: 1}); err != nil || v != 1 {
		t.Error(v, err)
	}
}

// TestExtendingNames checks that each definition of extending is found by a name in an expression.
func TestExtendingNames(t *testing.T) {
	q, err := gojq.Parse(extending)
	if err != nil {
		t.Fatal(err)
	}
	for _, def := range q.FuncDefs {
		if !slices.ContainsFunc(extendingNames, func(name string) bool { return strings.Contains(def.Name, name) }) {
			t.Errorf("%s is not found", def.Name)
		}
	}
}

// TestLongURI expands a URI with many variables.
func TestLongURI(t *testing.T) {
	call := func(uri string) *Template {
		w, err := Parse("t.yaml", []byte(document+`do: [{a: {call: http, with: {method: get, endpoint: "`+uri+`"}}}]`))
		if err != nil {
			t.Fatal(err)
		}
		return w.Do.List[0].Call.Service.With
	}
	data := map[string]any{"x": strings.Repeat("/", 1000)}
	if _, err := call("https://a.b/" + strings.Repeat("{x}", 20)).Eval(Scope{Data: data}); err != nil {
		t.Error(err)
	}
	var before, after runtime.MemStats
	many := call("https://a.b/" + strings.Repeat("{x}", 100_000))
	runtime.ReadMemStats(&before)
	_, err := many.Eval(Scope{Data: data})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "64 KiB") || after.TotalAlloc-before.TotalAlloc > 10<<20 {
		t.Errorf("%v, of %d bytes", err, after.TotalAlloc-before.TotalAlloc)
	}
}

// FuzzEval compares expressions with and without their guards, and searches for some that
// bypass the guards.
func FuzzEval(f *testing.F) {
	for _, text := range []string{
		`.a[0] + 1`, `"ab" * 3`, `.a |= map(. * 2)`, `[.[]?]`, `reduce .a[] as $v (0; . + $v)`, `. as {a: [$x]} | $x`,
		`"\(.a)"`, `@base64`, `[paths]`, `.a += [3] | .b *= 2`, `def f(g): g + g; f(.a)`, `.a[1:][0]`, `label $l | 1, break $l`,
		`(.a[] | select(. - 1 == length - 1)) |= 9`, `del(.a[] | select(contains(1)))`, `[.a, [1]] | .[0] - .[1]`, `"a,b" | split(",")`, `"abab" | [match("b"; "g").offset]`, `.a | index(2)`, `"x" | gsub("x"; "y")`, `.a == [1, 2]`, `path(.a[] | select(. > 1))`, `try error catch .`, `.. |= .`, `[limit(3; repeat(.))]`, `to_entries`, `if . then 1 elif 2 then 3 end`, `-.b`, `?//1`,
		`.a[1, 4] = 2`, `(.a | .[1:]) |= . + [1]`, `.a[[2]]`, `[.a] | transpose`, `[tostream] | fromstream(.[])`, `pick(.a[1])`, `.b / 2`, `"a b" / " "`,
		`[("aab" | sub("(?<x>a)"; .x + "1", "2"; "g", "i"))]`, `"ab" | [splits("a*"; "g")]`, `"añb" | [scan("(ñ)|b")]`, `"b" | capture("(?<y>b)(?<z>c)?")`, `"a" | test("A"; "i", null)`,
	} {
		f.Add(text, `{"a": [1, 2], "b": 3}`)
	}
	f.Fuzz(func(t *testing.T, text, input string) {
		var v any
		if len(text) > 300 || json.Unmarshal([]byte(input), &v) != nil {
			return
		}
		e, err := compile(text, nil)
		if err != nil {
			return
		}
		got, gotErr := e.Eval(Scope{Data: v, Now: noon})
		if gotErr != nil {
			return
		}
		for _, word := range []string{"now", "env", "local", "halt", "input", "debug", "stderr", "join", "add", "__"} {
			if strings.Contains(text, word) {
				return
			}
		}
		query, err := gojq.Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		code, err := gojq.Compile(query, gojq.WithVariables(arguments))
		if err != nil {
			return
		}
		want, err := singleResult(code.RunWithContext(&steps{left: 10 * maxEvalSteps, budget: untimed()}, v, nil, nil, nil, nil, nil, nil, seconds(noon), nil))
		if err != nil {
			t.Fatalf("%q is %v with guards and fails without: %v", text, got, err)
		}
		if gojq.Compare(got, want) != 0 {
			t.Fatalf("%q is %v with guards and %v without", text, got, want)
		}
	})
}
