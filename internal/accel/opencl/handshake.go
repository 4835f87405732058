package opencl

import "fmt"

// Protocol is the version of opencl.api that this worker implements.
const Protocol = 1

func errProtocolVersion(got uint32) error {
	return fmt.Errorf("the client speaks protocol %d, this worker %d: use the same version of outboard on both machines", got, Protocol)
}

func (w *Worker) doHello(m *message, a *argsHello) error {
	c := w.caller.begin(m)
	if a.Protocol != Protocol {
		return malformed(m, errProtocolVersion(a.Protocol))
	}
	return w.caller.finish(c, clSuccess)
}

func (w *Worker) doClock(m *message, _ *argsClock) error {
	c := w.caller.begin(m)
	return w.caller.reply(c, clSuccess, (&replyClock{WorkerClock: monotonic()}).encode(c.body))
}

func (w *Worker) sendSnapshot() error {
	n := factWriter{drv: w.drv, device: w.device, frame: w.frames.current}
	for _, param := range facts[opClGetPlatformInfo] {
		n.writeFact(factKey{op: opClGetPlatformInfo, object: platformID}, fnClGetPlatformInfo, param, w.device.platform)
	}
	w.device.writeFacts(&n, deviceID, w.device.handle)
	s := argsSnapshot{MemoryLimit: w.memory.limit, Facts: n.e.Body()}
	return w.client.notify(opSnapshot, s.encode(nil))
}
