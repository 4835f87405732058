package calls

import (
	"os"

	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// storeHeld stores the calls in flight, of a process that is being replaced, that policies count.
func (h *Host) storeHeld(c *child, f *os.File) {
	var held []policy.InFlight
	if err := decodeFile(f, &held); err != nil {
		h.log.Warn("calls of an earlier process are not counted", "process", c.number, "error", err)
	}
	h.mu.Lock()
	c.held = held
	h.mu.Unlock()
	h.sendHeld()
}

// sendHeld sends the current process the calls in flight in those that it replaces.
func (h *Host) sendHeld() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []policy.InFlight
	for _, c := range h.children {
		if c.retiring && c != h.current {
			all = append(all, c.held...)
		}
	}
	if h.current == nil || len(all) == 0 && !h.heldSent {
		return
	}
	h.heldSent = len(all) > 0
	f, err := encodeFile("held", all)
	if err != nil {
		h.log.Warn("calls of earlier processes are not counted", "error", err)
		return
	}
	defer f.Close()
	// An error means that the process has ended: the next process gets the calls.
	_ = h.current.conn.Send(msgInFlight, nil, f)
}
