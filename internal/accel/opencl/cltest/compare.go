package cltest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Options say how the programs are run the other way.
type Options struct {
	// Through changes a command, ready to run over the local driver, so that
	// it runs the other way. Nil runs it over the local driver a second time,
	// which shows that the cases themselves are deterministic.
	Through func(*exec.Cmd)

	// Programs to run; empty means all.
	Programs []string

	// Limit is the time for one run of one program. Zero means a minute.
	Limit time.Duration

	// Differs names lines that may differ, with the reason: the key is
	// "program/case" for a whole case, or "program/case what" for the lines
	// that begin so.
	Differs map[string]string
}

func (o *Options) setDefaults(s *Suite) {
	if len(o.Programs) == 0 {
		o.Programs = s.Programs()
	}
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
}

// odd are the cases that the local driver does not pass, with the reason.
// Over the other way their own checks must hold.
var odd = map[string]string{
	"event/old_wait":              "PoCL 3.1 aborts: clEnqueueWaitForEvents is not there",
	"event/set_property":          "PoCL 3.1 crashes in clSetCommandQueueProperty",
	"event/callback_of_failure":   "PoCL 3.1 never calls back for a command whose wait list failed",
	"process/fork_calls":          "PoCL's threads are not there in a forked child, which waits for them for ever",
	"process/driver_dies":         "PoCL 3.1 aborts the process at a launch with too much local memory",
	"failure/after_failure":       "PoCL 3.1 never ends a command whose wait list had failed before it was enqueued",
	"unload/sigwait_after":        "as signal/sigwait_late; PoCL is never unloaded",
	"unload/fork_after":           "as process/fork_calls; PoCL is never unloaded",
	"signal/alternate_stack_kept": "the compiler in PoCL replaces the thread's alternate stack",
	"signal/settings_kept":        "the compiler in PoCL installs handlers, for SIGUSR1 too",
	"signal/sigwait_late":         "PoCL's threads do not block signals, so SIGTERM kills the process",
	"thread/first_calls":          "PoCL 3.1 answers CL_DEVICE_NOT_FOUND while another thread initialises it",
	"process/daemon_used":         "as fork_calls",
}

// Compare runs the programs over the local driver and through the other way,
// one subtest for each program and case.
func (s *Suite) Compare(t *testing.T, options Options) {
	t.Helper()
	options.setDefaults(s)
	for _, program := range options.Programs {
		t.Run(program, func(t *testing.T) { s.compareProgram(t, program, options) })
	}
}

func (s *Suite) compareProgram(t *testing.T, program string, options Options) {
	names, err := list(s.Path(program))
	if err != nil {
		t.Fatal(err)
	}
	want := s.runNative(program, names, options.Limit)
	wanted := names
	if options.Through == nil {
		wanted = want.order
	}
	got := run(s.Path(program), wanted, options.Through, options.Limit)
	for _, name := range got.order {
		t.Run(name, func(t *testing.T) {
			compareCase(t, program+"/"+name, got.cases[name], want.cases[name], options.Differs)
		})
	}
}

// runNative runs a program's cases, but for the odd ones, once for each suite.
func (s *Suite) runNative(program string, names []string, limit time.Duration) *result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.native[program]; known != nil {
		return known
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return odd[program+"/"+name] != "" })
	s.native[program] = run(s.Path(program), names, nil, limit)
	return s.native[program]
}

func compareCase(t *testing.T, key string, got, want *caseResult, differs map[string]string) {
	t.Helper()
	if got.last == "" {
		t.Fatalf("died: %s", got.died)
	}
	if failed := got.failures(); len(failed) > 0 {
		t.Errorf("failed:\n%s", strings.Join(failed, "\n"))
	}
	if want == nil || differs[key] != "" {
		return
	}
	if want.last != "ok" && want.last != got.last {
		t.Errorf("local driver: %q %s\n%s", want.last, want.died, strings.Join(want.failures(), "\n"))
	}
	if diff := cmp.Diff(comparable(key, got, differs), comparable(key, want, differs)); diff != "" {
		t.Errorf("other way (-) and local driver (+) differ:\n%s", diff)
	}
}

// comparable leaves out failures, which are reported by themselves, and lines
// that may differ.
func comparable(key string, r *caseResult, differs map[string]string) []string {
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
