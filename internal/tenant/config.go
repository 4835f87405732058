package tenant

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Protocol is the version of the messages between a node and a tenant's process (internal/ipc).
const Protocol = 6

// Types of messages between a node and a tenant's process.
const (
	// TypeConfig is the node's first message: a Config.
	TypeConfig = "config"
	// TypeReady is a message of the process: a Ready.
	TypeReady = "ready"
	// TypeConn is a message of the node, once the process is ready: the file is a client's
	// connection from which nothing was read.
	TypeConn = "conn"
	// TypeCloseConns is a request of the node: read no more requests on the connections passed
	// before.
	TypeCloseConns = "close_conns"
	// TypePing is a request of the node: respond.
	TypePing = "ping"
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
	// StateSocket is the socket where the node lends the pool's state.
	StateSocket string `json:"state_socket"`
	// CallsSocket is the socket where the node accepts its programs' calls, "" for a process
	// without a node.
	CallsSocket string `json:"calls_socket"`
	// DevicesSocket is the socket where the node leases devices for functions, "" for a process
	// without a node. DevicesKey authenticates the process there and to the node's other sockets,
	// since other processes can connect, too.
	DevicesSocket string `json:"devices_socket,omitempty"`
	DevicesKey    string `json:"devices_key,omitempty"`
	// ModelsSocket is the socket where the node serves models to functions, "" for a process
	// without a node.
	ModelsSocket string `json:"models_socket,omitempty"`
	// ModelBypassSocket is the socket where the node lets the process call the workers of models
	// itself, "" for a node or process that does not.
	ModelBypassSocket string `json:"model_bypass_socket,omitempty"`
	// Limits bound the bytes that the tenant may hold on this node.
	Limits quota.Limits `json:"limits,omitempty"`
	// MaxExecutions bounds the executions that run or wait on this node; 0 means the engine's
	// default.
	MaxExecutions int `json:"max_executions,omitempty"`
	// OutgoingPrivate are the private addresses to which apps may send requests: see
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
	// Members are the present nodes of the pool. The node reports changes on the local API.
	Members []outboard.Node `json:"members,omitempty"`
}

// Ready is a message of the process: its activity, whenever that changes, and at last that it is
// ready or why it can't be.
type Ready struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
	Doing string `json:"doing,omitempty"`
}

// ControlSocket returns the path of the socket where the process serves its local API.
func (c *Config) ControlSocket() string { return filepath.Join(c.Dir, "control.sock") }

// RequestsSocket returns the path of the socket where the process serves HTTP requests that the
// node forwards.
func (c *Config) RequestsSocket() string { return filepath.Join(c.Dir, "requests.sock") }
