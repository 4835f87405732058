package trace

import (
	"fmt"
	"time"
)

// Mode says whether a recorded program used local drivers or leased devices.
type Mode string

// The modes.
const (
	// Local is a run on the drivers of the program's own machine, without a session.
	Local Mode = "local"
	// Remote is a run on a leased device, through a session and its worker. The device may be
	// on the same machine: then the link is shared memory.
	Remote Mode = "remote"
)

// Header describes a recording as a whole. It is stored as JSON; unknown fields are ignored, so
// that later versions may add fields.
type Header struct {
	// API is the name of the accelerator API: "opencl".
	API string `json:"api"`
	// Mode says whether the calls went to a local driver or through sessions.
	Mode Mode `json:"mode"`
	// Origin is time 0 of the trace, in ns of CLOCK_MONOTONIC of the program's machine: about
	// when the program was started.
	Origin int64 `json:"origin_ns"`
	// Started is time 0 of the trace by the wall clock.
	Started time.Time `json:"started"`
	Program Program   `json:"program"`
	// Client is the machine on which the program ran.
	Client Machine `json:"client"`
	// Devices are the devices that the program used; Record.Device is an index.
	Devices []Device `json:"devices"`
	// Ops are the functions of the API; Record.Op is an index.
	Ops []Op `json:"ops"`
	// Recorder is the release that made the trace.
	Recorder string `json:"recorder,omitempty"`
}

// Program identifies the recorded program.
type Program struct {
	// Name is the last element of the program's path.
	Name string `json:"name"`
	// Fingerprint is the hexadecimal SHA-256 of the program's file and its arguments
	// ([Fingerprint]). Runs with equal fingerprints are expected to make the same calls.
	Fingerprint string `json:"fingerprint"`
}

// Machine describes a computer of the run.
type Machine struct {
	// Node is the computer's name in the pool, or its host name.
	Node string `json:"node"`
	// Cores is the number of processors that the process could use.
	Cores int `json:"cores"`
	// Model is the processor's name, as the system reports it.
	Model string `json:"model,omitempty"`
}

// Device is a device that the program used.
type Device struct {
	// ID is the device's name in the pool, "NODE/API/INDEX", or "" in a local run.
	ID string `json:"id,omitempty"`
	// Name is the driver's name of the device.
	Name string `json:"name"`
	// Kind is "cpu", "gpu" or "accelerator".
	Kind string `json:"kind,omitempty"`
	// Machine is the computer that has the device. In a local run it is Header.Client.
	Machine Machine `json:"machine"`
	// SameMachine reports that program and device were on one machine: the link is shared
	// memory, or in a local run a function call.
	SameMachine bool `json:"same_machine"`
	// Clock aligns the worker's clock.
	Clock Clock `json:"clock"`
	// Link is the network between program and device during the run, as measured; zero in a
	// local run.
	Link Link `json:"link"`
}

// Clock is the relation between the clock of a device's worker and that of the program.
// All times of records are already aligned.
type Clock struct {
	// Offset was added to a worker's times to get times of the program's clock, in ns.
	Offset int64 `json:"offset_ns"`
	// Uncertainty is half of the shortest round trip of the exchange that measured Offset, in
	// ns: the true offset is within Offset±Uncertainty. 0 on one machine.
	Uncertainty int64 `json:"uncertainty_ns"`
}

// Link is a network path as measured at the session's start and over its length.
type Link struct {
	// RTT is the median round trip of a small message through the session, in ns, including
	// the work of both ends; RTTSpread is the distance of its quartiles. 0: not measured.
	RTT       int64 `json:"rtt_ns"`
	RTTSpread int64 `json:"rtt_spread_ns"`
	// Forward and Backward are the bandwidths towards the device and back, in bytes/s, as the
	// nodes' probes had measured them: lower bounds. 0: not measured.
	Forward  float64 `json:"forward_bytes_per_s"`
	Backward float64 `json:"backward_bytes_per_s"`
}

// Op is a function of the API.
type Op struct {
	// Name is the function's name: clEnqueueNDRangeKernel.
	Name string `json:"name"`
	// Answer is the API description's word for when a forwarded call is answered: local,
	// cached, early, wait, wait(PARAMETER), refused.
	Answer string `json:"answer"`
}

// The bounds of a header. A reader refuses a trace beyond them.
const (
	maxHeader  = 1 << 20
	maxOps     = 4096
	maxDevices = 64
	maxText    = 4096
)

func (h *Header) validate() error {
	switch {
	case h.Mode != Local && h.Mode != Remote:
		return fmt.Errorf("mode %q: want %q or %q", h.Mode, Local, Remote)
	case len(h.Ops) == 0 || len(h.Ops) > maxOps:
		return fmt.Errorf("%d functions: want 1 to %d", len(h.Ops), maxOps)
	case len(h.Devices) == 0 || len(h.Devices) > maxDevices:
		return fmt.Errorf("%d devices: want 1 to %d", len(h.Devices), maxDevices)
	}
	for i, op := range h.Ops {
		if !isIdentifier(op.Name) {
			return fmt.Errorf("function %d has the name %.100q: want an identifier", i, op.Name)
		}
	}
	texts := []string{h.API, h.Program.Name, h.Program.Fingerprint, h.Client.Node, h.Client.Model, h.Recorder}
	for _, op := range h.Ops {
		texts = append(texts, op.Name, op.Answer)
	}
	for _, d := range h.Devices {
		texts = append(texts, d.ID, d.Name, d.Kind, d.Machine.Node, d.Machine.Model)
	}
	for _, t := range texts {
		if len(t) > maxText {
			return fmt.Errorf("a text of %d bytes: want at most %d", len(t), maxText)
		}
	}
	return nil
}

// isIdentifier reports whether a name is an identifier of C. Programs for tables take other texts
// for formulas.
func isIdentifier(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
