package cltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// caseResult is the output of one case.
type caseResult struct {
	lines      []string // without the last line
	last       string   // "ok", "FAILED", "skipped (...)"; empty: the program died in it
	exitReason string   // how, when it died
}

// result is the output of one program, by case.
type result struct {
	cases map[string]*caseResult
	order []string
	// problems is what the program has written to its standard error.
	problems []byte
}

// maxDeaths is how often a program is restarted in one run.
const maxDeaths = 8

// run runs the wanted cases of a program. When the program dies in a case, it
// is started again for the cases after it.
func run(path string, wanted []string, through func(*exec.Cmd), limit time.Duration) *result {
	all := &result{cases: map[string]*caseResult{}, order: wanted}
	for deaths, left := 0, wanted; len(left) > 0; deaths++ {
		if deaths > maxDeaths {
			for _, name := range left {
				all.cases[name] = &caseResult{exitReason: "not run: the program died too often"}
			}
			break
		}
		output, problems, err := execute(path, caseArgs(left), through, limit)
		all.problems = append(all.problems, problems...)
		left = all.record(parse(output, left), left, fmt.Sprintf("%v\n%s", err, tail(output)))
	}
	return all
}

// record stores the results of cases up to the one in which the program died, if
// any, and returns the cases after it.
func (r *result) record(found map[string]*caseResult, names []string, how string) []string {
	for i, name := range names {
		r.cases[name] = found[name]
		if found[name] == nil {
			r.cases[name] = &caseResult{}
		}
		if r.cases[name].last == "" {
			r.cases[name].exitReason = how
			return names[i+1:]
		}
	}
	return nil
}

func caseArgs(names []string) []string {
	args := make([]string, 0, 2*len(names))
	for _, name := range names {
		args = append(args, "-case", name)
	}
	return args
}

// list returns the names of a program's cases.
func list(path string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "-list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s -list: %w", path, err)
	}
	return strings.Fields(string(output)), nil
}

// execute runs a command and returns its standard output and error. At the limit it kills the
// command's process group.
func execute(path string, args []string, through func(*exec.Cmd), limit time.Duration) (output, problems []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if through != nil {
		through(cmd)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Minute // on a busy machine
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("still running after %v", limit)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // cases failed, and their lines say so
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, tail(stderr.Bytes()))
	}
	return stdout.Bytes(), stderr.Bytes(), err
}

// parse sorts lines by case: "case what: value", "case FAILED where: what" and the last one "case:
// ok". Lines of no wanted case, such as the output of a kernel, belong to the case that is running.
func parse(output []byte, wanted []string) map[string]*caseResult {
	found := map[string]*caseResult{}
	at := 0
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSuffix(line, "\n")
		if at == len(wanted) {
			break
		}
		current := found[wanted[at]]
		if current == nil {
			current = &caseResult{}
			found[wanted[at]] = current
		}
		last, isLast := strings.CutPrefix(line, wanted[at]+": ")
		if !isLast {
			current.lines = append(current.lines, line)
			continue
		}
		current.last = last
		at++
	}
	return found
}

func (r *caseResult) failures() []string {
	return slices.DeleteFunc(slices.Clone(r.lines), func(line string) bool { return !strings.Contains(line, " FAILED ") })
}

func tail(text []byte) string {
	const most = 2000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return strings.TrimSpace(string(text))
}
