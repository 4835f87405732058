package tenant

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Protocol is the version of the messages between a node and a tenant's process (internal/ipc).
const Protocol = 5

// Types of messages between a node and a tenant's process.
const (
	// TypeConfig is the node's first message: a Config.
	TypeConfig = "config"
	// TypeReady is a message of the process: a Ready.
	TypeReady = "ready"
	// TypeConn is a message of the node, once the process is ready: the file is a connection of
	// a client of which nothing was read.
	TypeConn = "conn"
	// TypeCloseConns is a request of the node: read no more requests on connections that were
	// passed before.
	TypeCloseConns = "close_conns"
)

// Config is the first message of a node to a tenant's process.
type Config struct {
	Protocol int             `json:"protocol"`
	Tenant   string          `json:"tenant"`
	Node     outboard.NodeID `json:"node"`
	Boot     string          `json:"boot"`
	// Dir is the process's folder. Artifacts is the folder of the node's artifacts, which
	// the process only reads.
	Dir       string `json:"dir"`
	Artifacts string `json:"artifacts"`
	// StateSocket is where the node relays the pool's state. Where NATS is set the process
	// connects to that server itself, with Creds.
	StateSocket string `json:"state_socket"`
	NATS        string `json:"nats,omitempty"`
	Creds       string `json:"creds,omitempty"`
	// CallsSocket is where the node accepts its programs' calls, "" for a process that has no
	// node.
	CallsSocket string `json:"calls_socket"`
	// DevicesSocket is where the node leases devices for functions, "" for a process that has no
	// node. DevicesKey authenticates the process there, since other processes can connect, too.
	DevicesSocket string `json:"devices_socket,omitempty"`
	DevicesKey    string `json:"devices_key,omitempty"`
	// Limits are what the tenant may hold on this node, in bytes.
	Limits quota.Limits `json:"limits,omitempty"`
	// OutgoingPrivate are the private addresses that apps may send requests to: see
	// egress.Options.
	OutgoingPrivate []string `json:"outgoing_private,omitempty"`
	// HTTP is the address at which the node accepts requests for apps, "" for none.
	HTTP string `json:"http,omitempty"`
	// Hosts are the host names for which requests are served, none for all.
	Hosts []string `json:"hosts,omitempty"`
	// ClientTimeout is how long a client may make the gateway wait; 0 means its default.
	ClientTimeout time.Duration `json:"client_timeout,omitempty"`
	Heartbeat     time.Duration `json:"heartbeat,omitempty"`
	Level         slog.Level    `json:"level"`
	// Members are the nodes of the pool now. The node reports changes on the local API.
	Members []outboard.Node `json:"members,omitempty"`
}

// Ready is a message of the process: what it is doing, when that changes, and at last that it
// is ready or why it can't be.
type Ready struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
	Doing string `json:"doing,omitempty"`
}

// ControlSocket is where the process serves its local API.
func (c *Config) ControlSocket() string { return filepath.Join(c.Dir, "control.sock") }

// RequestsSocket is where the process serves HTTP requests that the node forwards.
func (c *Config) RequestsSocket() string { return filepath.Join(c.Dir, "requests.sock") }
