package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Mechanism is one of the kernel's mechanisms of isolation.
type Mechanism string

// The mechanisms.
const (
	// Identity is a separate user: a uid from a range, or a user namespace.
	Identity Mechanism = "identity"
	// Mounts is a private root, with read-only libraries and named device files.
	Mounts Mechanism = "mounts"
	// Processes is a PID namespace: the process sees and signals only its own children,
	// and all of them end with it.
	Processes Mechanism = "processes"
	// IPC is a namespace of System V and POSIX inter-process communication.
	IPC Mechanism = "ipc"
	// Hostname is a UTS namespace.
	Hostname Mechanism = "hostname"
	// Network is a network namespace without an interface.
	Network Mechanism = "network"
	// Landlock restricts files, TCP, signals and abstract sockets.
	Landlock Mechanism = "landlock"
	// Seccomp is an allow-list of system calls.
	Seccomp Mechanism = "seccomp"
	// Cgroup bounds the memory and the number of tasks, and ends them together.
	Cgroup Mechanism = "cgroup"
)

// Mechanisms lists all mechanisms.
var Mechanisms = []Mechanism{Identity, Mounts, Processes, IPC, Hostname, Network, Landlock, Seccomp, Cgroup}

// ParseMechanisms parses names with commas between. "all" means every mechanism but Cgroup, which
// the machine's service manager may not allow; "none" and "" mean no mechanism.
func ParseMechanisms(text string) ([]Mechanism, error) {
	var list []Mechanism
	for name := range strings.SplitSeq(text, ",") {
		switch m := Mechanism(strings.TrimSpace(name)); {
		case m == "" || m == "none":
		case m == "all":
			list = append(list, Mechanisms[:len(Mechanisms)-1]...)
		case slices.Contains(Mechanisms, m):
			list = append(list, m)
		default:
			return nil, fmt.Errorf("%q is no mechanism of isolation: known are all, none, %s", m, join(Mechanisms))
		}
	}
	return list, nil
}

// Missing returns the required mechanisms that are not among have.
func Missing(required, have []Mechanism) []Mechanism {
	return slices.DeleteFunc(slices.Clone(required), func(m Mechanism) bool { return slices.Contains(have, m) })
}

func join(list []Mechanism) string {
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
