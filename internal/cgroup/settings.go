package cgroup

import "strconv"

// setting is a file of a control group and the text written to it. An optional file may not exist
// on every kernel.
type setting struct {
	file, text string
	optional   bool
}

// defaultShares is the default weight of a group of version 1.
const defaultShares = 1024

// settings returns the files that set limits, as the kernel documents them:
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
func (h *hierarchy) settings(l Limits) []setting {
	var list []setting
	if l.Memory > 0 && h.controllers["memory"] {
		bytes := strconv.FormatInt(l.Memory, 10)
		if h.v2 {
			list = append(list, setting{"memory.max", bytes, false}, setting{"memory.swap.max", "0", true}, setting{"memory.oom.group", "1", true})
		} else {
			list = append(list, setting{"memory.limit_in_bytes", bytes, false}, setting{"memory.memsw.limit_in_bytes", bytes, true})
		}
	}
	if l.Tasks > 0 && h.controllers["pids"] {
		list = append(list, setting{"pids.max", strconv.Itoa(l.Tasks), false})
	}
	if l.Weight > 0 && h.controllers["cpu"] {
		list = append(list, h.weightSetting(l.Weight))
	}
	return list
}

// weightSetting returns the file that sets a group's weight.
func (h *hierarchy) weightSetting(weight int) setting {
	weight = min(weight, 10000)
	if h.v2 {
		return setting{"cpu.weight", strconv.Itoa(weight), false}
	}
	return setting{"cpu.shares", strconv.Itoa(max(weight*defaultShares/DefaultWeight, 2)), false}
}
