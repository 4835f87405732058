package outboard

import (
	"slices"
	"time"
)

// NodeID names one node of a pool: the value of `outboard up --name`.
// It is unique in the pool and made of lower-case letters, digits and '-'.
type NodeID string

// DeviceID names one device of a pool, "NODE/API/INDEX", for example
// "harbour/opencl/0". It stays the same while the node's drivers do.
type DeviceID string

// LeaseID names one lease. It is random and never used again.
type LeaseID string

// SessionID names one session: one process's live use of one leased device.
type SessionID string

// API is the interface through which programs use a device.
type API string

// OpenCL is the API of OpenCL 1.0 to 3.0 devices.
const OpenCL API = "opencl"

// DeviceType is what kind of accelerator a device is.
type DeviceType string

// The types that a selector may ask for.
const (
	CPU         DeviceType = "cpu"
	GPU         DeviceType = "gpu"
	Accelerator DeviceType = "accelerator"
	Custom      DeviceType = "custom"
)

// A Node is one machine that runs `outboard up`, as the pool knows it.
type Node struct {
	ID NodeID `json:"id"`
	// Addr is where other nodes reach it, "HOST:PORT".
	Addr string `json:"addr"`
	// Fingerprint is the SHA-256 of the node's public key, in hex.
	Fingerprint string `json:"fingerprint"`
	Version     string `json:"version"`
	// Boot changes with every start of the node, so that a restarted node is
	// not taken for the one that held leases before.
	Boot string `json:"boot"`
	// Copy says that the node keeps a copy of the pool's state.
	Copy    bool      `json:"copy"`
	Devices []Device  `json:"devices,omitempty"`
	Started time.Time `json:"started"`
	// AdmittedBy are the nodes that have admitted it: the one that made its token and, if it is
	// another one, the one at which the token was presented. None for the first node of a pool.
	AdmittedBy []NodeID `json:"admitted_by,omitempty"`
}

// A Device is an accelerator that a node owns and offers.
type Device struct {
	ID       DeviceID   `json:"id"`
	Node     NodeID     `json:"node"`
	API      API        `json:"api"`
	Type     DeviceType `json:"type"`
	Name     string     `json:"name"`
	Vendor   string     `json:"vendor"`
	Platform string     `json:"platform"`
	// Driver is the driver's version, Version the API version that it claims.
	Driver  string `json:"driver"`
	Version string `json:"version"`
	// Memory is the device's global memory.
	Memory Bytes `json:"memory"`
	Units  int   `json:"units"`
	// Sandbox names the mechanisms by which the device's node isolates the processes that
	// execute kernels, with commas between.
	Sandbox string `json:"sandbox,omitempty"`
}

// MaxWeight bounds the weight of a grant.
const MaxWeight = 1000

// A Grant is one lease's part of a device.
type Grant struct {
	Lease  LeaseID `json:"lease"`
	Holder NodeID  `json:"holder"`
	// Boot is the holder's boot: a grant of an earlier boot is void.
	Boot string `json:"boot"`
	// Memory is what the lease may allocate. A whole device is its Memory.
	Memory Bytes `json:"memory"`
	// Exclusive says that nobody else gets a part of the device meanwhile.
	Exclusive bool `json:"exclusive"`
	// Weight is the share of device time against other grants, 1 to MaxWeight.
	Weight  int       `json:"weight"`
	Expires time.Time `json:"expires"`
	// Program is what the holder runs, for people.
	Program string `json:"program,omitempty"`
}

// A Lease is the right to use a device, or a share of it, for a while.
type Lease struct {
	Grant
	Device DeviceID `json:"device"`
	// Fence is greater than that of every earlier lease of the device.
	Fence uint64 `json:"fence"`
}

// FreeMemory is what of the device is not granted at time now.
// It is zero while an exclusive grant stands.
func (d Device) FreeMemory(grants []Grant, now time.Time) Bytes {
	free := d.Memory
	for _, g := range grants {
		switch {
		case !g.Expires.After(now):
		case g.Exclusive:
			return 0
		default:
			free -= min(free, g.Memory)
		}
	}
	return free
}

// Live returns the grants that have not expired at time now.
func Live(grants []Grant, now time.Time) []Grant {
	return slices.DeleteFunc(slices.Clone(grants), func(g Grant) bool { return !g.Expires.After(now) })
}
