package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// copyProgress is a bar on a terminal that shows how much of a file has been copied. It is an
// io.Writer that counts.
type copyProgress struct {
	env   *Env
	label string
	total int64

	mu    sync.Mutex
	done  int64
	drawn time.Time
	began time.Time
}

const (
	// barInterval is how often the bar is drawn, barDelay how long after the start it is first
	// drawn.
	barInterval   = 100 * time.Millisecond
	barDelay      = 300 * time.Millisecond
	progressWidth = 30
)

func newCopyProgress(env *Env, label string, total int64) *copyProgress {
	return &copyProgress{env: env, label: label, total: total, began: time.Now()}
}

// Write implements io.Writer.
func (p *copyProgress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(len(b))
	if p.env.Terminal && time.Since(p.began) > barDelay && time.Since(p.drawn) > barInterval {
		p.draw()
	}
	return len(b), nil
}

// draw draws the bar. mu must be held.
func (p *copyProgress) draw() {
	p.drawn = time.Now()
	filled := progressWidth
	if p.total > 0 {
		filled = int(min(p.done, p.total) * progressWidth / p.total)
	}
	fmt.Fprintf(p.env.Stderr, "\r%s [%s%s] %v of %v ", clean(p.label), strings.Repeat("=", filled), strings.Repeat(" ", progressWidth-filled),
		outboard.Bytes(p.done), outboard.Bytes(p.total))
}

// end ends the line of the bar, if it was drawn.
func (p *copyProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.drawn.IsZero() {
		p.draw()
		fmt.Fprintln(p.env.Stderr)
	}
}
