package calls

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// inherit gives a process what the policies of the one before hold. An older program
// does not know how to tell or to take it: then they begin anew.
func (c *child) inherit(ctx context.Context, paused *message) {
	defer paused.close()
	if len(paused.files) == 0 {
		return
	}
	if _, err := c.control.ask(ctx, &message{Type: msgTake, files: paused.files}); err != nil {
		c.host.log.Warn("the policies begin anew in the process that takes over", "error", err)
	}
}

// note adds what a process has counted to the ledger. It is the process's last word.
func (h *Host) note(c *child, f *os.File) error {
	var l ledger
	err := readFile(f, &l)
	if err != nil {
		return err
	}
	if l.families, err = parseMetrics(bytes.NewReader(l.Metrics)); err != nil {
		return fmt.Errorf("read the metrics of process %d: %w", c.number, err)
	}
	h.books.Lock()
	defer h.books.Unlock()
	h.past.add(&l)
	c.noted = true
	return nil
}

// heldBy notes which calls a process that is being replaced has under way.
func (h *Host) heldBy(c *child, f *os.File) {
	var held []policy.InFlight
	if err := readFile(f, &held); err != nil {
		h.log.Warn("calls of an earlier process are not counted", "process", c.number, "error", err)
	}
	h.mu.Lock()
	c.held = held
	h.mu.Unlock()
	h.passHeld()
}

// passHeld tells the current process which calls others have under way.
func (h *Host) passHeld() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []policy.InFlight
	for _, c := range h.children {
		if c.retiring && c != h.current {
			all = append(all, c.held...)
		}
	}
	if h.current == nil || len(all) == 0 && !h.heldToldOf {
		return
	}
	h.heldToldOf = len(all) > 0
	f, err := fileOf("held", all)
	if err != nil {
		h.log.Warn("calls of earlier processes are not counted", "error", err)
		return
	}
	defer f.Close()
	// Its error is that the process has ended: the next one is told.
	_ = h.current.control.tell(&message{Type: msgHeld, files: []*os.File{f}})
}
