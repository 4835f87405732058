package tenant

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard"
)

// Protocol is the version of what a node and a tenant's process say to each other.
const Protocol = 2

// Config is what a node tells a tenant's process, as the first line on its socket.
type Config struct {
	Protocol int             `json:"protocol"`
	Tenant   string          `json:"tenant"`
	Node     outboard.NodeID `json:"node"`
	Boot     string          `json:"boot"`
	// Dir is the process's folder. Artifacts is that of all tenants' artifacts.
	Dir       string `json:"dir"`
	Artifacts string `json:"artifacts"`
	// StateSocket is where the node lends the pool's state. Where NATS is set the
	// process goes there itself, with Creds.
	StateSocket string `json:"state_socket"`
	NATS        string `json:"nats,omitempty"`
	Creds       string `json:"creds,omitempty"`
	// CallsSocket is where the node takes its programs' calls, "" for a process that has
	// no node.
	CallsSocket string `json:"calls_socket"`
	// DevicesSocket is where the node leases devices for functions, "" for a process that
	// has no node, and DevicesKey what the process shows there: others can reach it, too.
	DevicesSocket string `json:"devices_socket,omitempty"`
	DevicesKey    string `json:"devices_key,omitempty"`
	// HTTP is where the node takes requests to apps, "" for nowhere.
	HTTP      string        `json:"http,omitempty"`
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	Level     slog.Level    `json:"level"`
	// Members are the nodes of the pool now. What changes the process is told.
	Members []outboard.Node `json:"members,omitempty"`
}

// Ready is the process's answer to its Config: what it is doing, as often as that changes,
// and at last that it is ready or why it can't be.
type Ready struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
	Doing string `json:"doing,omitempty"`
}

// The doors of a tenant's process, in its folder.
const (
	controlSocket = "control.sock"
	connsSocket   = "conns.sock"
)

// ControlSocket is where the process serves its local API.
func (c *Config) ControlSocket() string { return filepath.Join(c.Dir, controlSocket) }

// ConnsSocket is where the process takes connections over.
func (c *Config) ConnsSocket() string { return filepath.Join(c.Dir, connsSocket) }
