package cltest

import (
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Options configure a comparison.
type Options struct {
	// Driver is the local driver to compare with; nil means PoCL.
	Driver *Driver

	// Through changes a command that is ready to run over the local driver, so that it runs the
	// other way. Nil compares nothing: the cases' own checks must hold over the local driver.
	Through func(*exec.Cmd)

	// Programs are the programs to run; empty means all that make sense with the driver.
	Programs []string

	// InTurn runs one program after the other. Programs that run in parallel wait for slots among
	// the parallel tests, so a test that holds a lock for which the tests in these slots wait needs
	// InTurn.
	InTurn bool

	// Limit bounds the run of one program, which may hang. Zero means five minutes.
	Limit time.Duration

	// Differs lists lines that may differ, with the reason: the key is "program/case" for a whole
	// case, or "program/case what" for the lines that begin so.
	Differs map[string]string

	// Skip lists cases, as "program/case", that are not run the other way, with the reason: they
	// kill the driver there, and all later cases with it.
	Skip map[string]string
}

func (o *Options) setDefaults(s *Suite) {
	if o.Driver == nil {
		o.Driver = PoCL()
	}
	if len(o.Programs) == 0 {
		o.Programs = o.Driver.programs
	}
	if len(o.Programs) == 0 {
		o.Programs = s.Programs()
	}
	if o.Limit == 0 {
		o.Limit = 5 * time.Minute
	}
}

// Compare runs the programs over the local driver and through the other way,
// one subtest for each program and case.
func (s *Suite) Compare(t *testing.T, options Options) {
	t.Helper()
	options.setDefaults(s)
	for _, program := range options.Programs {
		t.Run(program, func(t *testing.T) {
			if !options.InTurn {
				t.Parallel()
			}
			s.compareProgram(t, program, options)
		})
	}
}

func (s *Suite) compareProgram(t *testing.T, program string, options Options) {
	names, err := list(s.Path(program))
	if err != nil {
		t.Fatal(err)
	}
	want := s.runNative(program, names, options)
	got := want
	if options.Through != nil {
		wanted := slices.DeleteFunc(names, func(name string) bool { return options.Skip[program+"/"+name] != "" })
		got = run(s.Path(program), wanted, options.Through, options.Limit)
	}
	ok := true
	for _, name := range got.order {
		ok = t.Run(name, func(t *testing.T) {
			compareCase(t, program+"/"+name, got.cases[name], want.cases[name], options.Differs)
		}) && ok
	}
	if !ok {
		t.Logf("the program's standard error:\n%s", tail(got.problems))
	}
}

// runNative runs a program's cases over the local driver, except the odd ones, once per suite.
func (s *Suite) runNative(program string, names []string, options Options) *result {
	driver, key := options.Driver, options.Driver.name+"/"+program
	s.mu.Lock()
	known := s.native[key]
	if known == nil {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return driver.odd[program+"/"+name] != "" })
		known = sync.OnceValue(func() *result { return run(s.Path(program), names, driver.choose, options.Limit) })
		s.native[key] = known
	}
	s.mu.Unlock()
	return known()
}

func compareCase(t *testing.T, key string, got, want *caseResult, differs map[string]string) {
	t.Helper()
	if got.last == "" {
		t.Fatalf("died: %s", got.exitReason)
	}
	if failed := got.failures(); len(failed) > 0 {
		t.Errorf("failed:\n%s", strings.Join(failed, "\n"))
	}
	if want == nil || differs[key] != "" {
		return
	}
	if want.last != "ok" && want.last != got.last {
		t.Errorf("local driver: %q %s\n%s", want.last, want.exitReason, strings.Join(want.failures(), "\n"))
	}
	if diff := cmp.Diff(compared(key, got, differs), compared(key, want, differs)); diff != "" {
		t.Errorf("other way (-) and local driver (+) differ:\n%s", diff)
	}
}

// compared returns the lines to compare: not failures, which are reported separately, and not lines
// that may differ.
func compared(key string, r *caseResult, differs map[string]string) []string {
	program, _, _ := strings.Cut(key, "/")
	return slices.DeleteFunc(append(slices.Clone(r.lines), r.last), func(line string) bool {
		if strings.Contains(line, " FAILED ") {
			return true
		}
		for allowed := range differs {
			if strings.HasPrefix(program+"/"+line, allowed+":") || strings.HasPrefix(program+"/"+line, allowed+" ") {
				return true
			}
		}
		return false
	})
}

// Cases lists the cases of a program that pass over PoCL.
func (s *Suite) Cases(t testing.TB, program string) []string {
	t.Helper()
	names, err := list(s.Path(program))
	if err != nil {
		t.Fatal(err)
	}
	odd := PoCL().odd
	return slices.DeleteFunc(names, func(name string) bool { return odd[program+"/"+name] != "" })
}
