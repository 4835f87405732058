// Package control is the protocol between a node and one of its workers, in messages of
// internal/ipc. No message is a reply:
//
//	node -> worker    config, first and once
//	                  contended {on, background}: request turns from now on, or no longer. With
//	                  background the worker submits work while it waits for a turn
//	                  grant {quantum_ns, yield_ns}: a turn, and the part of it after which a
//	                  worker that waits for its client ends it
//	                  quota {bytes}: more device memory, the answer to reserve; 0: none
//	                  reclaim: release the memory that is not in use
//	                  stderr {text}: a line that the worker's process wrote to standard error,
//	                  for the client; only after ready
//	worker -> node    isolation {mechanisms, gaps}: the worker's isolation, first
//	                  ready, or final when the worker failed to start
//	                  active, idle: the session has work for the device, or none
//	                  request {used_ns}, end {used_ns}: a turn is over; another one is wanted, or not
//	                  stats {memory, calls, bytes_in, bytes_out}
//	                  reserve {bytes}: more device memory is wanted; one at a time
//	                  release {bytes}: less device memory is needed
//	                  log {level, text}
//	                  final {final_kind, reason}: why the session ends; the last message
//
// When the node closes the connection, the worker must exit at once. A worker that exits without a
// final message has crashed. An end whose messages are not read for WriteTimeout closes the
// connection.
package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/sandbox"
)

const (
	// MaxMessage bounds a message in bytes.
	MaxMessage = 64 << 10
	// maxText bounds a text in a message in bytes: JSON encodes a byte in at most six.
	maxText = MaxMessage / 8
	// WriteTimeout is how long a node waits for a worker to read. The node sends little, so a full
	// socket means that the worker does not read.
	WriteTimeout = 50 * time.Millisecond
)

// RecipesFile is the file of a cache with the keys of the recipes whose results are in the cache,
// one per line. Earlier versions used another name, and listed recipes whose compilation had failed
// by chance: with a new name these are compiled again.
const RecipesFile = "outboard-recipes-2"

// Type is the type of a message.
type Type string

// The types of messages.
const (
	TypeConfig    Type = "config"
	TypeContended Type = "contended"
	TypeGrant     Type = "grant"
	TypeIsolation Type = "isolation"
	TypeReady     Type = "ready"
	TypeActive    Type = "active"
	TypeIdle      Type = "idle"
	TypeRequest   Type = "request"
	TypeEnd       Type = "end"
	TypeStats     Type = "stats"
	TypeLog       Type = "log"
	TypeFinal     Type = "final"
	TypeReserve   Type = "reserve"
	TypeRelease   Type = "release"
	TypeQuota     Type = "quota"
	TypeReclaim   Type = "reclaim"
	TypeStderr    Type = "stderr"
)

// Config is the configuration of a worker.
type Config struct {
	Session outboard.SessionID `json:"session"`
	// Memory bounds the lease's allocations on the device. 0: no limit.
	Memory outboard.Bytes `json:"memory,omitempty"`
	// Quota is the part of it that the session may allocate before it must reserve more; nil: the
	// whole.
	Quota *outboard.Bytes `json:"quota,omitempty"`
	// Weight is the lease's share of device time, for the log.
	Weight int          `json:"weight,omitempty"`
	API    outboard.API `json:"api"`
	// Device is the index of the device in the result of Probe.
	Device int `json:"device"`
	// DeviceName guards against drivers that have changed meanwhile: the session is refused when
	// the device at the index has another name. Empty: not checked.
	DeviceName string `json:"device_name,omitempty"`
	// CacheDir holds compiled kernels, which a driver keeps between sessions. A session can't
	// change it: see package lend. It must not be shared between tenants or programs.
	CacheDir string `json:"cache_dir"`
	// TmpDir is the session's own folder; the node removes it afterwards.
	TmpDir string `json:"tmp_dir"`
	// ReadPaths are files and folders that the driver needs to read beyond the system's own.
	ReadPaths []string `json:"read_paths,omitempty"`
	// Owner is the owner of the session, for the log.
	Owner string `json:"owner,omitempty"`
	// Host bounds the node's own memory that the worker uses for its client. 0: as much as of the
	// device's, at most a quarter of the machine's, and a little more.
	Host outboard.Bytes `json:"host,omitempty"`
	// Sandbox configures the worker's isolation, Require lists the mechanisms without which it
	// refuses to run.
	Sandbox sandbox.Config      `json:"sandbox"`
	Require []sandbox.Mechanism `json:"require,omitempty"`
	// Cgroup reports that the node has put the worker into a control group of its own.
	Cgroup bool `json:"cgroup,omitempty"`
	// Compile makes the process compile recipes into CacheDir instead of serving a session. It
	// inherits the recipes in place of the ring.
	Compile bool `json:"compile,omitempty"`
	// CacheSize bounds the session's additions to its cache, which are lost at its end, in bytes.
	CacheSize outboard.Bytes `json:"cache_size,omitempty"`
	// Recipes reports that the worker has inherited a third file, for the recipes from which a
	// compile step compiles its kernels again.
	Recipes bool `json:"recipes,omitempty"`
	// Inspect ends the worker once it has reported its isolation.
	Inspect bool `json:"inspect,omitempty"`
}

// Isolation describes a worker's isolation.
type Isolation struct {
	Mechanisms []sandbox.Mechanism `json:"mechanisms"`
	// Layered reports that sessions see the additions of earlier compile steps to their cache.
	Layered bool `json:"layered,omitempty"`
	// Gaps are the mechanisms that this machine lacks, with the reasons.
	Gaps []string `json:"gaps,omitempty"`
}

// Stats are totals since the session's start, except Memory.
type Stats struct {
	// Memory is the memory that the session has currently allocated.
	Memory   outboard.Bytes `json:"memory"`
	Calls    uint64         `json:"calls"`
	BytesIn  uint64         `json:"bytes_in"`
	BytesOut uint64         `json:"bytes_out"`
}

// Message is one message. Type determines which of the other fields are set.
type Message struct {
	Type   Type    `json:"-"` // in the header
	Config *Config `json:"config,omitempty"`
	On     bool    `json:"on,omitempty"`
	// Background reports that work which is submitted before a turn runs in the background.
	Background bool          `json:"background,omitempty"`
	Quantum    time.Duration `json:"quantum_ns,omitempty"`
	Yield      time.Duration `json:"yield_ns,omitempty"`
	Used       time.Duration `json:"used_ns,omitempty"`
	// Bytes is an amount of the lease's device memory.
	Bytes outboard.Bytes `json:"bytes,omitempty"`
	Stats *Stats         `json:"stats,omitempty"`
	// Isolation describes the worker's isolation.
	Isolation *Isolation    `json:"isolation,omitempty"`
	Level     string        `json:"level,omitempty"`
	Text      string        `json:"text,omitempty"`
	Kind      outboard.Kind `json:"final_kind,omitempty"`
	Reason    string        `json:"reason,omitempty"`
}

func (m *Message) validate() error {
	switch {
	case m.Type == TypeConfig && m.Config == nil, m.Type == TypeStats && m.Stats == nil, m.Type == TypeIsolation && m.Isolation == nil:
		return fmt.Errorf("control: %s without its content", m.Type)
	case m.Used < 0 || m.Quantum < 0 || m.Yield < 0:
		return fmt.Errorf("control: %s with a negative time", m.Type)
	}
	return nil
}

// Conn is one end of the connection. Several goroutines may call Send, one may call Receive.
type Conn struct{ conn *ipc.Conn }

var options = ipc.Options{MaxBody: MaxMessage, MaxReceived: MaxMessage}

// Pair returns the node's end of a connection, and the file of the worker's end, which the caller
// closes once the worker has inherited it.
func Pair() (node *Conn, worker *os.File, err error) {
	opts := options
	opts.WriteTimeout = WriteTimeout
	conn, worker, err := ipc.Pair(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("control connection: %w", err)
	}
	return &Conn{conn}, worker, nil
}

// FromFile returns the worker's end of a connection, from an inherited socket. It closes f.
func FromFile(f *os.File) (*Conn, error) {
	conn, err := ipc.FromFile(f, options)
	if err != nil {
		return nil, fmt.Errorf("control connection: %w: start the node again with this program", err)
	}
	return &Conn{conn}, nil
}

// ReadConfig receives the first message from an inherited socket, which stays open: the program
// that this process executes next receives the later messages.
func ReadConfig(f *os.File) (Config, error) {
	conn, err := ipc.FromOpenFile(f, options)
	if err != nil {
		return Config{}, fmt.Errorf("control connection: %w: start the node again with this program", err)
	}
	c := &Conn{conn}
	m, err := c.Receive()
	if err = errors.Join(err, c.Close()); err != nil {
		return Config{}, fmt.Errorf("control connection: receive the configuration: %w", err)
	}
	if m.Type != TypeConfig {
		return Config{}, fmt.Errorf("control connection: the first message is %.40q and not a configuration", m.Type)
	}
	return *m.Config, nil
}

// Send sends one message. It closes the connection when the other end does not read.
func (c *Conn) Send(m Message) error {
	err := c.conn.Send(string(m.Type), &m)
	if outboard.KindOf(err) == outboard.Unreachable {
		_ = c.conn.Close()
	}
	return err
}

// Receive waits for the next message; it returns io.EOF when the other end has closed the
// connection. It returns messages of unknown types: newer ends may send them.
func (c *Conn) Receive() (Message, error) {
	received, err := c.conn.Receive(context.Background())
	if err != nil {
		return Message{}, err
	}
	defer received.Close()
	m := Message{Type: Type(received.Type)}
	if err := received.Decode(&m); err != nil {
		return m, err
	}
	return m, m.validate()
}

// Log sends a line for the node's log. A lost connection is no error here: the reader of the
// connection detects it.
func (c *Conn) Log(level, text string) {
	_ = c.Send(Message{Type: TypeLog, Level: level, Text: text[:min(len(text), maxText)]})
}

// Final sends the last message, with the reason of the session's end.
func (c *Conn) Final(err error) {
	m := Message{Type: TypeFinal}
	if err != nil {
		text := err.Error()
		m.Kind, m.Reason = outboard.KindOf(err), text[:min(len(text), maxText)]
	}
	_ = c.Send(m)
}

// Close closes the connection; a waiting Receive returns.
func (c *Conn) Close() error { return c.conn.Close() }
