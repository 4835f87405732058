// Package ctest tests parts of the driver library that need no session, as C programs with the sanitizers.
package ctest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInclude builds the C program around include.c once for all that it is asked.
func TestInclude(t *testing.T) {
	program := objects.link(t, []string{"testdata/include.c", "../source/include.c", "../source/find.c", "../source/tree.c", "../source/scan.c", "../source/options.c"})
	for name, test := range map[string]func(*testing.T, string){
		"find":     testIncludesFind,
		"options":  testOptionWords,
		"restore":  testIncludesRestore,
		"relocate": testRelocate,
		"bounds":   testIncludesBounds,
		"random":   testIncludesRandom,
	} {
		t.Run(name, func(t *testing.T) { test(t, program) })
	}
}

func runC(t *testing.T, program, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func lay(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var headers = map[string]string{
	"proj/cwd.h":            "int cwd;",
	"proj/inc/a.h":          `#include "b.h"`,
	"proj/inc/b.h":          "// end",
	"proj/inc/up.h":         `#include "../shared/s.h"`,
	"proj/shared/s.h":       `#include "deep/d.h"`,
	"proj/shared/deep/d.h":  `#include "../../inc/b.h"`,
	"proj/my inc/m.h":       `#include "n.h"`,
	"proj/my inc/n.h":       "",
	"proj/inc/sub/x.h":      `#include <sub/y.h>`,
	"proj/inc/sub/y.h":      "",
	"proj/inc/other.txt":    "",
	"proj/inc2/a.h":         `#include "only2.h"`,
	"proj/inc2/only2.h":     "",
	"proj/inc/loop.h":       `#include "loop.h"`,
	"proj/my inc/q d/r.h":   "",
	"proj/inc/nextable.h":   `#include_next <nextable.h>`,
	"proj/inc2/nextable.h":  "",
	"outside/lib/o.h":       `#include "p.h"`,
	"outside/lib/p.h":       "",
	"proj/only/dots/keep.h": "",
	"proj/only/dots/none/x": "",
}

func testIncludesFind(t *testing.T, program string) {
	root := t.TempDir()
	lay(t, root, headers)
	wire := "/outboard-include/0"
	for name, test := range map[string]struct {
		source, options, want string
	}{
		"no options, nothing found": {"#include \"no.h\"\nkernel void f() {}", "-", "options NULL\n"},
		"no directories":            {"kernel void f() {}", "-cl-fast-relaxed-math -DX=1", "options -cl-fast-relaxed-math -DX=1\n"},
		"working directory":         {`#include "cwd.h"`, "-", "options -I" + wire + "\n0/cwd.h:8\n"},
		"working directory first":   {"#include <cwd.h>", "-w", "options -I" + wire + " -w\n0/cwd.h:8\n"},
		"relative directory":        {`#include "a.h"`, "-I inc", "options -I" + wire + "\n0/a.h:14\n0/b.h:6\n"},
		"glued, dotted":             {`#include "a.h"`, "-DA -I./inc/ -DB", "options -DA -I" + wire + " -DB\n0/a.h:14\n0/b.h:6\n"},
		"directory without headers": {"", "-Iinc -Imissing", "options -I" + wire + "/inc -I" + wire + "/missing\n"},
		"above the directory": {
			`#include "up.h"`, "-Iinc",
			"options -I" + wire + "/inc\n0/inc/up.h:24\n0/shared/s.h:19\n0/inc/.outboard-keep:0\n0/shared/deep/d.h:24\n0/inc/b.h:6\n0/shared/deep/.outboard-keep:0\n0/shared/.outboard-keep:0\n",
		},
		"above a directory that holds nothing": {
			`#include "../keep.h"`, "-Ionly/dots/none",
			"options -I" + wire + "/none\n0/keep.h:0\n0/none/.outboard-keep:0\n",
		},
		"quoted directory":      {`#include "m.h"`, `-I "my inc"`, "options -I" + wire + "\n0/m.h:14\n0/n.h:0\n"},
		"backslash, two":        {`#include "m.h"`, `-Iinc -Imy\ inc`, "options -I" + wire + "/inc -I" + wire + "/my=20inc\n0/my=20inc/m.h:14\n0/my=20inc/n.h:0\n"},
		"spaces in the operand": {`#include "q d/r.h"`, `'-Imy inc'`, "options -I" + wire + "\n0/q d/r.h:0\n"},
		"subdirectory, angles":  {"#include <sub/x.h>", "-Iinc", "options -I" + wire + "\n0/sub/x.h:18\n0/sub/y.h:0\n"},
		"first directory wins":  {"#include <a.h>", "-Iinc2 -Iinc", "options -I" + wire + "/inc2 -I" + wire + "/inc\n0/inc2/a.h:18\n0/inc2/only2.h:0\n"},
		"a header of itself":    {"#include <loop.h>", "-Iinc", "options -I" + wire + "\n0/loop.h:17\n"},
		"include_next":          {"#include <nextable.h>", "-Iinc -Iinc2", "options -I" + wire + "/inc -I" + wire + "/inc2\n0/inc/nextable.h:26\n0/inc2/nextable.h:0\n"},
		"macro of the source":   {"#define H \"b.h\"\n#include H", "-Iinc", "options -I" + wire + "\n0/b.h:6\n"},
		"macro of a macro":      {"#define G <b.h>\n#define H G\n# include H", "-Iinc", "options -I" + wire + "\n0/b.h:6\n"},
		"macro of the options":  {"#include H", `-Iinc -DH=\"b.h\"`, "options -I" + wire + ` -DH=\"b.h\"` + "\n0/b.h:6\n"},
		"macro, angles":         {"#include H", `-Iinc -D 'H=<b.h>'`, "options -I" + wire + ` -D 'H=<b.h>'` + "\n0/b.h:6\n"},
		"has_include":           {"#if defined(X) && __has_include( \"b.h\" )\n#endif", "-Iinc", "options -I" + wire + "\n0/b.h:6\n"},
		"in comments":           {"// #include \"a.h\"\n/* \n#include \"a.h\"\n*/ \"\n#include <a.h>", "-Iinc", "options -I" + wire + "\n0/a.h:14\n0/b.h:6\n"},
		"spliced, commented":    {"/**/ # /* x */ inc\\\nlude /*y*/ \"b.h\"", "-Iinc", "options -I" + wire + "\n0/b.h:6\n"},
		"within a string":       {"char *s = \"\\\"\\\n#include <b.h>\";", "-Iinc", "options -I" + wire + "\n"},

		"a comment that begins behind a condition":  {"#if X /* one\n/*/\n#include <b.h>\n#endif\n/* two */", "-Iinc", "options -I" + wire + "\n0/b.h:6\n"},
		"a comment that begins behind a definition": {"#define X 1 /* one\n/*/\n#include <b.h>\n/* two */", "-Iinc", "options -I" + wire + "\n0/b.h:6\n"},
		"a comment within a condition":              {"#if X == /* one\n#include <a.h>\n*/ 1\n#include <b.h>\n#endif", "-Iinc", "options -I" + wire + "\n0/b.h:6\n"},
		"comment marks that begin no comment":       {"#if X // /*\n#include <b.h>\n#endif\n#if '/*' == \"/*\"\n#include <sub/y.h>\n#endif", "-Iinc", "options -I" + wire + "\n0/b.h:6\n0/sub/y.h:0\n"},

		"two roots":          {"#include <o.h>\n#include <b.h>", "-I../outside/lib -Iinc", "options -I" + wire + "/outside/lib -I" + wire + "/proj/inc\n0/outside/lib/o.h:14\n0/proj/inc/b.h:6\n0/outside/lib/p.h:0\n"},
		"absolute directory": {"#include <o.h>", "-I" + root + "/outside/lib", "options -I" + wire + "\n0/o.h:14\n0/p.h:0\n"},
		"absolute header": {
			fmt.Sprintf("#include %q", root+"/outside/lib/o.h"), "-w -Iinc",
			"options -w -I" + wire + root + "/proj/inc -I" + wire + "\n0" + root + "/outside/lib/o.h:14\n0" + root + "/outside/lib/p.h:0\n",
		},
		"directory as a header": {"#include <sub>", "-Iinc", "options -I" + wire + "\n"},
		"path in a macro of the options": {
			"#include M2S(INC/o.h)", "-D INC=" + root + "/outside/lib -w", "options -D INC=" + wire + " -w\n0/o.h:14\n0/p.h:0\n",
		},
		"path in a macro, quoted, nested": {
			"#include A(B(INC/o.h))\n#include <b.h>", "-I inc -DINC=\"" + root + "/outside/lib\"",
			"options -I" + wire + "/proj/inc -DINC=\"" + wire + "/outside/lib\"\n0/outside/lib/o.h:14\n0/proj/inc/b.h:6\n0/outside/lib/p.h:0\n",
		},
		"file in a macro of the source": {"#define D sub\n#define E D\n#include S(E/y.h)", "-Iinc", "options -I" + wire + "\n0/sub/y.h:0\n"},
		"path in a macro, unused":       {"#include <b.h>", "-DINC=" + root + " -Iinc", "options -DINC=" + root + " -I" + wire + "\n0/b.h:6\n"},
		"unknown macro": {
			"#include H(b)", "-I../outside", "options -I" + wire + "/proj -I" + wire + "/outside\n0/outside/lib/o.h:14\n0/outside/lib/p.h:0\n0/proj/cwd.h:8\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := runC(t, program, test.source, filepath.Join(root, "proj"), test.options)
			if diff := cmp.Diff(sortTail(got), sortTail(test.want)); diff != "" {
				t.Errorf("-got +want:\n%s", diff)
			}
		})
	}
}

// sortTail sorts the files: their order says nothing.
func sortTail(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines[1:])
	return lines
}

func testOptionWords(t *testing.T, program string) {
	for options, want := range map[string]string{
		"":                        "",
		"-I":                      "",
		"-I ":                     "",
		"-Ia -I b\t-I\nc":         "I[a] -Ia\nI[b] -I b\nI[c] -I\nc\n",
		`-I"a b" -I "c d"`:        "I[a b] -I\"a b\"\nI[c d] -I \"c d\"\n",
		`"-Ia b"`:                 "I[a b] \"-Ia b\"\n",
		`-Ia\ b '-Ic d'`:          "I[a b] -Ia\\ b\nI[c d] '-Ic d'\n",
		`-DX=-Ia -D "Y -I b" -Ic`: "I[c] -Ic\nD[X=-Ia]\nD[\"Y -I b\"]\n",
		`-D -Ia`:                  "D[-Ia]\n",
		`-DA=' -Ib`:               "I[b] -Ib\nD[A=']\n",
		`-I"a\"b"`:                "I[a\"b] -I\"a\\\"b\"\n",
		`-Ia\`:                    "I[a\\] -Ia\\\n",
	} {
		if diff := cmp.Diff(runC(t, program, "", "-words", options), want); diff != "" {
			t.Errorf("%q: -got +want:\n%s", options, diff)
		}
	}
}

func testIncludesRestore(t *testing.T, program string) {
	root := t.TempDir()
	lay(t, root, headers)
	log := "/outboard-include/0/inc/a.h:1: error\nin /outboard-include/0/inc2/x.h, /outboard-include/0/shared/s.h /outboard-include/0/inc\n/outboard-include/1/x"
	got := runC(t, program, "#include <cwd.h>", "-log", filepath.Join(root, "proj"), "-I ./inc/ -I inc2", log)
	want := "./inc/a.h:1: error\nin inc2/x.h, ./shared/s.h ./inc\n/outboard-include/1/x"
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func testRelocate(t *testing.T, program string) {
	for text, want := range map[string]string{
		`#include "/a/b.h"`:             `#include  "a/b.h"`,
		"x\n # include<//a/b.h> y":      "x\n # include  <a/b.h> y",
		`#include_next "/a"`:            `#include_next  "a"`,
		`#include "a/b.h"`:              `#include "a/b.h"`,
		`int include = "/a";`:           `int include = "/a";`,
		`#include`:                      `#include`,
		`#include "/`:                   `#include  "`,
		`include "/a"`:                  `include "/a"`,
		"#include <x>\n#include </y>\n": "#include <x>\n#include  <y>\n",
	} {
		if got := runC(t, program, text, "-relocate"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func testIncludesBounds(t *testing.T, program string) {
	root := t.TempDir()
	var source bytes.Buffer
	for i := range 4097 {
		name := fmt.Sprintf("h%d.h", i)
		fmt.Fprintf(&source, "#include %q\n", name)
		lay(t, root, map[string]string{name: ""})
	}
	got := runC(t, program, source.String(), root, "-I .")
	if want := "refusal outboard: the headers of this program are more than 4096 files\n"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Truncate(filepath.Join(root, "h1.h"), 63<<20); err != nil {
		t.Fatal(err)
	}
	got = runC(t, program, "#include <h0.h>\n#include <h1.h>", root, "-I .")
	if want := "refusal outboard: the headers of this program are more than 63 MiB\n"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// What is only guessed is no reason to refuse.
	got = runC(t, program, "#include H(x)", root, "-I .")
	if strings.Contains(got, "refusal") || strings.Count(got, "\n") < 1000 {
		t.Errorf("guessing: got %d lines, starting %.200q", strings.Count(got, "\n"), got)
	}
}

func testIncludesRandom(t *testing.T, program string) {
	root := t.TempDir()
	lay(t, root, map[string]string{"a.h": "#include \"sub/b.h\"", "sub/b.h": "#include X\n#include M(X/b.h)\n#define X <a.h>", "my dir/a.h": "", "sub/a.h": "#include \"../a.h\""})
	for seed := range 4 {
		runC(t, program, "", "-fuzz", root, fmt.Sprint(seed), "1000")
	}
}
