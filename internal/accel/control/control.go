// Package control is the protocol between a node and one of its workers: lines
// of JSON over a unix socket, one message a line.
//
//	node -> worker    config, first and once
//	                  contended {on}: ask for turns from now on, or no longer
//	                  grant {quantum_ns}: a turn
//	                  quota {bytes}: more device memory, the answer to reserve; 0: none
//	                  reclaim: release what is not in use
//	worker -> node    isolation {mechanisms, gaps}: how it is isolated, first
//	                  ready, or final when it could not get ready
//	                  active, idle: the session has work for the device, or none
//	                  request {used_ns}, end {used_ns}: a turn is over; another one is wanted, or not
//	                  stats {memory, calls, bytes_in, bytes_out}
//	                  reserve {bytes}: more device memory is wanted; one at a time
//	                  release {bytes}: less device memory is needed
//	                  log {level, text}
//	                  final {kind, reason}: why the session ends; the last message
//
// End of file from the node means: end at once. A worker that ends without a
// final message crashed.
package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// MaxLine is the longest line that either side accepts.
const MaxLine = 64 << 10

// RecipesFile is the file of a cache that holds the keys of the recipes that the cache has the
// results of, a line each.
const RecipesFile = "outboard-recipes"

// Type names a message.
type Type string

// The messages.
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
)

// Config is all that a worker needs to know.
type Config struct {
	Session outboard.SessionID `json:"session"`
	// Memory is what the lease may allocate on the device. 0: no limit.
	Memory outboard.Bytes `json:"memory,omitempty"`
	// Quota is how much of it the session may allocate before it has to reserve more; nil:
	// all of it is the session's.
	Quota *outboard.Bytes `json:"quota,omitempty"`
	// Weight is the lease's share of device time, for the log.
	Weight int          `json:"weight,omitempty"`
	API    outboard.API `json:"api"`
	// Device is the index of the device as Probe lists it.
	Device int `json:"device"`
	// DeviceName guards against drivers that changed since: the session is
	// refused when the device at the index has another name. Empty: not checked.
	DeviceName string `json:"device_name,omitempty"`
	// CacheDir holds what a driver keeps between sessions, compiled kernels. A session can't
	// change it: see package lend. It must not be shared between tenants or programs.
	CacheDir string `json:"cache_dir"`
	// TmpDir is the session's own folder; the node removes it afterwards.
	TmpDir string `json:"tmp_dir"`
	// ReadPaths are files and folders that the driver needs to read beyond the
	// system's own.
	ReadPaths []string `json:"read_paths,omitempty"`
	// Owner names the owner of the session, for the log.
	Owner string `json:"owner,omitempty"`
	// Host bounds what the worker holds of the node's own memory for its client.
	// 0: as much as of the device's, at most a quarter of the machine's, and a little.
	Host outboard.Bytes `json:"host,omitempty"`
	// Sandbox is what the worker is isolated with, Require what it refuses to run without.
	Sandbox sandbox.Config      `json:"sandbox"`
	Require []sandbox.Mechanism `json:"require,omitempty"`
	// Cgroup says that the node has put the worker into a control group of its own.
	Cgroup bool `json:"cgroup,omitempty"`
	// Compile makes the process compile recipes into CacheDir instead of serving a session.
	// It gets them instead of the ring.
	Compile bool `json:"compile,omitempty"`
	// CacheSize bounds what a session may add to its cache, which vanishes with it, in bytes.
	CacheSize outboard.Bytes `json:"cache_size,omitempty"`
	// Recipes says that the worker has inherited a third file, for what a compile step needs
	// to compile its kernels again.
	Recipes bool `json:"recipes,omitempty"`
	// Inspect ends the worker once it has reported its isolation.
	Inspect bool `json:"inspect,omitempty"`
}

// Isolation is how a worker is isolated.
type Isolation struct {
	Mechanisms []sandbox.Mechanism `json:"mechanisms"`
	// Layered says that sessions see what an earlier compile step has put into their cache.
	Layered bool `json:"layered,omitempty"`
	// Gaps are the mechanisms that this machine lacks, with the reasons.
	Gaps []string `json:"gaps,omitempty"`
}

// Stats are counted since the session's start, but for Memory.
type Stats struct {
	// Memory is what the session has allocated now.
	Memory   outboard.Bytes `json:"memory"`
	Calls    uint64         `json:"calls"`
	BytesIn  uint64         `json:"bytes_in"`
	BytesOut uint64         `json:"bytes_out"`
}

// Message is one line. Type says which of the other fields count.
type Message struct {
	Type    Type          `json:"type"`
	Config  *Config       `json:"config,omitempty"`
	On      bool          `json:"on,omitempty"`
	Quantum time.Duration `json:"quantum_ns,omitempty"`
	Used    time.Duration `json:"used_ns,omitempty"`
	// Bytes are device memory of the lease.
	Bytes outboard.Bytes `json:"bytes,omitempty"`
	Stats *Stats         `json:"stats,omitempty"`
	// Isolation is how the worker is isolated.
	Isolation *Isolation    `json:"isolation,omitempty"`
	Level     string        `json:"level,omitempty"`
	Text      string        `json:"text,omitempty"`
	Kind      outboard.Kind `json:"kind,omitempty"`
	Reason    string        `json:"reason,omitempty"`
}

func (m *Message) validate() error {
	switch {
	case m.Type == TypeConfig && m.Config == nil, m.Type == TypeStats && m.Stats == nil, m.Type == TypeIsolation && m.Isolation == nil:
		return fmt.Errorf("control: %s without its content", m.Type)
	case m.Used < 0 || m.Quantum < 0:
		return fmt.Errorf("control: %s with a negative time", m.Type)
	case m.Type == "":
		return errors.New("control: message without a type")
	}
	return nil
}

// Conn is one end of the connection. Send may be called by several
// goroutines, Receive by one.
type Conn struct {
	socket io.ReadWriteCloser
	lines  *bufio.Scanner
	mu     sync.Mutex
}

// New speaks over socket and closes it in Close.
func New(socket io.ReadWriteCloser) *Conn {
	lines := bufio.NewScanner(socket)
	lines.Buffer(make([]byte, 0, 4<<10), MaxLine)
	return &Conn{socket: socket, lines: lines}
}

// FromFile speaks over a unix socket that was inherited. It takes f over.
func FromFile(f *os.File) (*Conn, error) {
	socket, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return New(socket), nil
}

// ReadConfig reads the first message from an inherited socket, and not one byte
// more: another program of the same process reads on.
func ReadConfig(f *os.File) (Config, error) {
	var line []byte
	var one [1]byte
	for len(line) < MaxLine {
		n, err := f.Read(one[:])
		if err != nil {
			return Config{}, fmt.Errorf("control: read configuration: %w", err)
		}
		if n == 1 && one[0] == '\n' {
			break
		}
		line = append(line, one[:n]...)
	}
	var m Message
	if err := json.Unmarshal(line, &m); err != nil {
		return Config{}, fmt.Errorf("control: read configuration: %w", err)
	}
	if m.Type != TypeConfig || m.Config == nil {
		return Config{}, fmt.Errorf("control: the first message is %q and not a configuration", m.Type)
	}
	return *m.Config, nil
}

// Send writes one message.
func (c *Conn) Send(m Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if len(line) >= MaxLine {
		return fmt.Errorf("control: %s of %d bytes", m.Type, len(line))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.socket.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("control: send %s: %w", m.Type, err)
	}
	return nil
}

// Receive waits for the next message; io.EOF says that the other end is gone.
// Types that it does not know come through: newer ends may say more.
func (c *Conn) Receive() (Message, error) {
	var m Message
	if !c.lines.Scan() {
		if err := c.lines.Err(); err != nil {
			return m, fmt.Errorf("control: receive: %w", err)
		}
		return m, io.EOF
	}
	if err := json.Unmarshal(c.lines.Bytes(), &m); err != nil {
		return m, fmt.Errorf("control: receive: %w", err)
	}
	err := m.validate()
	return m, err
}

// Log sends a line for the node's log. A lost connection is no error here: the
// reader of the connection finds out.
func (c *Conn) Log(level, text string) {
	_ = c.Send(Message{Type: TypeLog, Level: level, Text: text[:min(len(text), MaxLine/8)]})
}

// Final says why the session ends.
func (c *Conn) Final(err error) {
	m := Message{Type: TypeFinal}
	if err != nil {
		text := err.Error()
		m.Kind, m.Reason = outboard.KindOf(err), text[:min(len(text), MaxLine/8)]
	}
	_ = c.Send(m)
}

// Close closes the socket; a Receive that waits returns.
func (c *Conn) Close() error { return c.socket.Close() }
