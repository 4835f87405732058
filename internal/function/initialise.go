package function

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard/internal/function/optimize"
)

// initialise runs the module's start and takes the image.
func (v *version) initialise(ctx context.Context) error {
	s, err := newSlot(v, nil)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.load(v.code.Data); err != nil {
		return err
	}
	limits := v.settings.Limits
	limits.Deadline, limits.Fuel = initDeadline, 0
	for _, name := range []string{optimize.StartName, "_initialize"} {
		if err := s.begin(ctx, name, &limits); err != nil {
			return initError(name, err, s)
		}
	}
	if v.window, err = s.openWindow(ctx, &limits, &v.settings); err != nil {
		return initError(windowName, err, s)
	}
	return v.capture(s)
}

// begin runs one of the functions that a module begins with, if it has it.
func (s *slot) begin(ctx context.Context, name string, l *Limits) error {
	f := s.instance.ExportedFunction(name)
	if f == nil {
		return nil
	}
	if d := f.Definition(); len(d.ParamTypes()) != 0 || len(d.ResultTypes()) != 0 {
		return fmt.Errorf("it must take and return nothing")
	}
	_, err := s.run(ctx, f, l)
	return err
}

// initError is why a module could not begin. What it wrote says more than the engine's stack,
// of whose functions few have names.
func initError(name string, err error, s *slot) error {
	out := s.stderr.take()
	if wrote := firstLines(out.Text); wrote != "" {
		return fmt.Errorf("initialise: %s: %w; it wrote:%s", name, unstacked{err}, wrote)
	}
	return fmt.Errorf("initialise: %s: %w", name, err)
}

// How much is told of what a module wrote.
const (
	longWords = 12   // lines
	longText  = 2048 // bytes
)

// firstLines are the first lines of a text, each on a line of its own: a panic begins with
// what is wrong.
func firstLines(text []byte) string {
	var b strings.Builder
	lines := 0
	for line := range bytes.Lines(bytes.TrimSpace(text[:min(len(text), longText)])) {
		if lines++; lines > longWords {
			b.WriteString("\n  ...")
			break
		}
		b.WriteString("\n  " + strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "?"))
	}
	return b.String()
}
