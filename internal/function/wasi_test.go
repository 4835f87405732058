package function

import (
	"errors"
	"fmt"
	"testing"

	"github.com/outboard-run/outboard/internal/function/assemble"
)

// wasiCall is a module whose entry calls a function of WASI with i32 arguments, and returns its result as
// the status.
func wasiCall(name string, results bool, arguments ...int32) []byte {
	params := make([]byte, len(arguments))
	var code []byte
	for i, a := range arguments {
		params[i] = assemble.I32
		code = append(code, assemble.I32Const(a)...)
	}
	i32 := []byte{assemble.I32}
	wasi := assemble.Type(params, i32)
	if !results {
		wasi = assemble.Type(params, nil)
	}
	code = append(code, 0x10, 0)
	if !results {
		code = append(code, 0x41, 7)
	}
	return assemble.File(
		assemble.Types(wasi, assemble.Type(nil, i32)), assemble.Imports(assemble.Import(wasiModule, name, 0, 0)),
		assemble.Functions(1), assemble.Memory(64, 64), assemble.Exports(assemble.Export("handle", 0, 1)),
		assemble.Code(assemble.Body(code...)),
	)
}

// TestHostCallsAreBounded makes host calls with as much work as their arguments can name: they are refused
// or charged.
func TestHostCallsAreBounded(t *testing.T) {
	r := open(t, Options{})
	tests := map[string]struct {
		module []byte
		status uint32 // 0 is success
		least  int64  // fuel
	}{
		"a write":                      {wasiCall("fd_write", true, 1, 0, 1, 8), 0, 1},
		"a write of many vectors":      {wasiCall("fd_write", true, 1, 0, maxVectors, 16384), 0, maxVectors},
		"a write of too many vectors":  {wasiCall("fd_write", true, 1, 0, maxVectors+1, 16384), wasiInvalid, 0},
		"a write of all of the memory": {wasiCall("fd_write", true, 2, 0, 1<<19, 0), wasiInvalid, 0},
		"a write that overflows":       {wasiCall("fd_write", true, 1, 0, 0x20000001, 0), wasiInvalid, 0},
		"a write out of bounds":        {wasiCall("fd_write", true, 1, -8, 1, 0), wasiFault, 0},
		"a result out of bounds":       {wasiCall("fd_write", true, 1, 0, 1, -1), wasiFault, 0},
		"a write to standard input":    {wasiCall("fd_write", true, 0, 0, 1, 0), wasiBadFD, 0},
		"a read":                       {wasiCall("fd_read", true, 0, 0, 1<<19, 8), 0, 0},
		"a read of output":             {wasiCall("fd_read", true, 1, 0, 1, 8), wasiBadFD, 0},
		"a read to nowhere":            {wasiCall("fd_read", true, 0, 0, 1, -1), wasiFault, 0},
		"a poll":                       {wasiCall("poll_oneoff", true, 0, 4096, 1, 8192), 0, 1},
		"a poll of many":               {wasiCall("poll_oneoff", true, 0, 1<<20, maxSubscriptions, 1<<21), 0, maxSubscriptions},
		"a poll of too many":           {wasiCall("poll_oneoff", true, 0, 1<<20, maxSubscriptions+1, 1<<21), wasiInvalid, 0},
		"a poll of nothing":            {wasiCall("poll_oneoff", true, 0, 0, 0, 0), wasiInvalid, 0},
		"a poll that overflows":        {wasiCall("poll_oneoff", true, 0, 0, 0x5555556, 0), wasiInvalid, 0},
		"a poll to nowhere":            {wasiCall("poll_oneoff", true, 0, -1, 1, 0), wasiFault, 0},
		"an exit with 0":               {wasiCall("proc_exit", false, 0), 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := deploy(t, r, test.module, Limits{Memory: 4 << 20})
			p, err := f.Call(t.Context(), Request{})
			status := uint32(0)
			if failed, ok := errors.AsType[*FailedError](err); ok {
				status, err = failed.Status, nil
			}
			if err != nil || status != test.status || p.Cost.Fuel < test.least {
				t.Errorf("got status %d with %d units of fuel, %v; want %d with at least %d", status, p.Cost.Fuel, err, test.status, test.least)
			}
			if c := f.Counts(); status == 0 && c.Failed != 0 {
				t.Errorf("%d calls failed", c.Failed)
			}
			checkFresh(t, f)
		})
	}
}

// TestPoll waits for the shortest of some clocks, and not beside a stream that is ready.
func TestPoll(t *testing.T) {
	clock := func(user byte, ns uint32, flags byte) []byte {
		s := make([]byte, subscriptionSize)
		s[0], s[subscriptionFlags] = user, flags
		for i := range 4 {
			s[subscriptionTimeout+i] = byte(ns >> (8 * i))
		}
		return s
	}
	stream := func(user, tag, fd byte) []byte {
		s := make([]byte, subscriptionSize)
		s[0], s[subscriptionTag], s[subscriptionFD] = user, tag, fd
		return s
	}
	tests := map[string]struct {
		subscriptions []byte
		wait          int64
		code          uint64
		ready         string
	}{
		"clocks":            {append(clock(1, 5000, 0), clock(2, 3000, 0)...), 3000, wasiOK, "2"},
		"the same time":     {append(clock(1, 3000, 0), clock(2, 3000, 0)...), 3000, wasiOK, "12"},
		"clock and output":  {append(clock(1, 5000, 0), stream(2, tagWrite, 1)...), 0, wasiOK, "2"},
		"clock that is due": {append(clock(1, 0, 0), stream(2, tagRead, 0)...), 0, wasiOK, "12"},
		"no such file":      {stream(3, tagRead, 9), 0, wasiOK, "3!"},
		"absolute":          {clock(1, 1, 1), 0, wasiNoSup, ""},
		"unknown":           {stream(1, 3, 0), 0, wasiInvalid, ""},
	}
	for name, test := range tests {
		wait, code := shortestWait(test.subscriptions)
		ready := ""
		for s := test.subscriptions; len(s) > 0 && code == wasiOK; s = s[subscriptionSize:] {
			if !isReady(s, wait) {
				continue
			}
			event := make([]byte, eventSize)
			writeEvent(event, s[:subscriptionSize])
			ready += fmt.Sprint(event[0])
			if event[eventError] == wasiBadFD {
				ready += "!"
			}
		}
		if code != test.code || code == wasiOK && wait != test.wait || ready != test.ready {
			t.Errorf("%s: got %d ns, code %d, ready %q", name, wait, code, ready)
		}
	}
}
