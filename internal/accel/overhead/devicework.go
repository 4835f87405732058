package overhead

import (
	"cmp"
	"slices"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// deviceWork returns the processor time of a command, which is 0 unless the device is a processor.
func deviceWork(m *model, r *trace.Record) cost.Time {
	d := &m.header.Devices[r.Device]
	if d.Kind != "cpu" || !r.HasDeviceTime() {
		return 0
	}
	cores := min(maxCores, cmp.Or(max(0, d.Machine.Cores), unknownCores))
	return ns(m.cores[r.Device].add(r.Start, r.Start+r.DeviceTime, cores))
}

// deviceBusy returns the part of a command's time in which its program had no other command on the
// device, as far as the calls so far tell: that part competes with other programs.
func deviceBusy(m *model, r *trace.Record) cost.Time {
	if m.links.shared == nil || !r.HasDeviceTime() {
		return ns(r.DeviceTime)
	}
	return ns(m.alone[r.Device].add(r.Start, r.Start+r.DeviceTime, 1))
}

// maxCores bounds the processors of a device in a recording.
const maxCores = 1024

// deviceCores are the processors of a device in the recording: for each of those that had work, when
// the commands so far were complete, in ns.
//
// A driver executes commands of several queues at the same time, even more of them than there are
// processors: the sum of their times is longer than the processors were busy.
type deviceCores []int64

// add returns the processor time of a command with the given times, in ns: that of one processor, less
// the time in which all processors had earlier commands.
func (c *deviceCores) add(start, end int64, cores int) int64 {
	if len(*c) == 0 {
		*c = append(*c, start)
	}
	first := slices.Index(*c, slices.Min(*c))
	if (*c)[first] > start && len(*c) < cores {
		first = len(*c)
		*c = append(*c, start)
	}
	busy := max(0, end-max(start, (*c)[first]))
	(*c)[first] = max((*c)[first], end)
	return busy
}
