package overhead

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// newStart creates the resources of the start of a run.
func newStart(m *model, mode trace.Mode) (err error) {
	opening := m.c.OpenTrips
	others := m.c.StartUpTrips - opening
	if mode == trace.Remote {
		// The first recorded call is a round trip of the opening.
		if opening > 0 {
			opening--
		} else {
			others = max(0, others-1)
		}
	}
	var start, open cost.Profile
	for i, half := range m.l.latency {
		start.Latency = append(start.Latency, 2*half*cost.Time(others)+m.l.start[i])
		open.Latency = append(open.Latency, 2*half*cost.Time(opening))
	}
	if m.start, err = m.e.Resource(start); err != nil {
		return err
	}
	m.open, err = m.e.Resource(open)
	return err
}

// openSession adds the start of a run before the program's first call, whose thread has the time of
// the program until then pending:
//
//	outboard run | program ............ | first call
//	             | session opens ..........|
//
// In a local recording the program's time includes the loading of the driver. The round trips after the
// program's end are added before its start, where they last as long.
func openSession(m *model, t *thread) {
	program := t.pending
	if m.header.Mode == trace.Local {
		program = max(0, program-cost.Of(m.c.DriverLoad))
	}
	leased := m.point()
	m.e.Add(cost.Task{On: m.start, Done: leased})
	m.e.Wait(t.on, leased)
	t.pending = cost.Of(m.c.StartUp)
	opened := m.point()
	m.e.Add(cost.Task{On: m.open, After: [2]cost.Point{m.run(t)}, Cost: cost.Of(m.c.Open), Done: opened})
	t.pending = program
	m.run(t)
	m.e.Wait(t.on, opened)
}

// beginsProcess reports whether a record is the first of a process other than the first one.
func beginsProcess(m *model, r *trace.Record) bool {
	if m.processes[r.Process] || len(m.processes) == maxProcesses {
		return false
	}
	m.processes[r.Process] = true
	return len(m.processes) > 1
}

// driverLoad returns the difference that the loading of the machine's own driver makes to the time before
// the first call of a further process, which has it in a local recording only.
func driverLoad(m *model) cost.Time {
	switch {
	case m.direct && m.header.Mode == trace.Remote:
		return cost.Of(m.c.DriverLoad)
	case !m.direct && m.header.Mode == trace.Local:
		return -cost.Of(m.c.DriverLoad)
	}
	return 0
}

// openFurtherSession adds the opening of the session of a further process, for which its first call
// waits. The first call of a remote recording did, so its time is that of the opening, with round trips of
// the link that was recorded.
func openFurtherSession(m *model, t *thread, r *trace.Record) {
	opening := cost.Of(m.c.Open)
	if m.header.Mode == trace.Remote {
		trips := int64(m.c.OpenTrips) * m.header.Devices[r.Device].Link.RTT
		opening = max(0, ns(r.Duration()-trips))
	}
	ready, opened := m.point(), m.point()
	m.e.Add(cost.Task{On: t.reply, After: [2]cost.Point{m.run(t)}, Cost: opening, Done: ready})
	m.e.Add(cost.Task{On: m.open, After: [2]cost.Point{ready}, Done: opened})
	m.e.Wait(t.on, opened)
}

// loadDriver adds the loading of the machine's own driver before the program's first call in a run
// without forwarding, which the recording of a leased run lacks.
func loadDriver(m *model, t *thread) {
	if m.header.Mode == trace.Remote {
		t.pending += cost.Of(m.c.DriverLoad)
	}
}
