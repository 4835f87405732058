package function

import (
	"bytes"
	"context"
	"errors"
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
	if err := s.writeSegments(v.code.Data); err != nil {
		return err
	}
	limits := v.settings.Limits
	limits.Deadline, limits.Fuel = initDeadline, 0
	for _, name := range []string{optimize.StartName, "_initialize"} {
		if err := s.runInitializer(ctx, name, &limits); err != nil {
			return initError(name, err, s)
		}
	}
	if v.window, err = s.openWindow(ctx, &limits, &v.settings); err != nil {
		return initError(windowName, err, s)
	}
	return v.capture(s)
}

// runInitializer runs the exported function of that name, without parameters and results, if there
// is one.
func (s *slot) runInitializer(ctx context.Context, name string, l *Limits) error {
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

// initError wraps why initialisation failed. The module's standard error replaces the engine's
// stack, of whose functions few have names.
func initError(name string, err error, s *slot) error {
	if limit, ok := errors.AsType[*LimitError](err); ok && limit.Limit == deadlineLimit {
		err = &LimitError{deadlineLimit, initDeadline.String(), "do less before the first call, as in Go's init and main: a function's own deadline bounds calls alone"}
	}
	out := s.stderr.drain()
	if wrote := firstLines(out.Text); wrote != "" {
		return fmt.Errorf("initialise: %s: %w; it wrote:%s", name, unstacked{err}, wrote)
	}
	return fmt.Errorf("initialise: %s: %w", name, err)
}

// The limits of the standard error that initError quotes.
const (
	longWords = 12   // lines
	longText  = 2048 // bytes
)

// firstLines returns the beginning of a text, indented: a panic begins with its message.
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
