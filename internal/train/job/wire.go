package job

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/compress"
	"github.com/outboard-run/outboard/internal/train/launch"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// Protocol is the TLS application protocol between nodes, with its version.
const Protocol = "outboard-jobs/4"

// Methods of streams.
const (
	methodRun   = "run"
	methodMesh  = "mesh"
	methodStore = "store"
	methodOffer = "offer"
)

const (
	// maxMessage bounds a message in bytes.
	maxMessage = 4 << 20
	maxText    = 64 << 10
	// MaxRanks bounds the ranks of a job, maxNodes its nodes.
	MaxRanks = 1024
	maxNodes = 256
)

// A purpose is the header of a stream.
type purpose struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	// Manager is the node that drives the job; in a stream of the job's manager it is the peer instead.
	Manager outboard.NodeID `json:"manager,omitempty"`
	// From is the number of the node that opens the stream, For the use of a mesh connection.
	From int    `json:"from,omitempty"`
	For  string `json:"for,omitempty"`
}

func (p purpose) key() key { return key{p.Manager, p.Job, p.Attempt} }

// A key names one attempt of a job. The manager is part of it: any node may drive a job with the ID of
// another node's, and start ranks that would be taken for those of that job.
type key struct {
	manager outboard.NodeID
	job     string
	attempt int
}

// A message is a message of the run stream. One field is set.
type message struct {
	// From the manager.
	Start *start `json:"start,omitempty"`
	Stop  *stop  `json:"stop,omitempty"`
	Kept  *kept  `json:"kept,omitempty"`
	Moves *moves `json:"moves,omitempty"`
	// From the node.
	Started  *started  `json:"started,omitempty"`
	Line     *line     `json:"line,omitempty"`
	Exited   *exited   `json:"exited,omitempty"`
	Saved    *saved    `json:"saved,omitempty"`
	Profiled *profiled `json:"profiled,omitempty"`
	Expired  *expired  `json:"expired,omitempty"`
	// Suspended is the state that a rank has left for the next attempt.
	Suspended *suspended `json:"suspended,omitempty"`
	// Decided describes a decision for a rank of the node.
	Decided *ranks.Decision `json:"decided,omitempty"`
}

// A start requests a node to start ranks.
type start struct {
	// World is the number of ranks; this node has Count from First on, PerDevice for each claim.
	World     int `json:"world"`
	First     int `json:"first"`
	Count     int `json:"count"`
	PerDevice int `json:"per_device"`
	// Nodes are the job's nodes by number, Node is the receiver's number.
	Nodes []outboard.NodeID `json:"nodes"`
	Node  int               `json:"node"`
	// Claims prove the leases of this node's devices.
	Claims [][]byte          `json:"claims"`
	Args   []string          `json:"args"`
	Files  string            `json:"files,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	Link   collective.Link   `json:"link"`
	// Gradients says how sums are sent between nodes: compress.Parse.
	Gradients string `json:"gradients,omitempty"`
	// Threads and Offload are the resources that each rank may use: launch.Resources.
	Threads string `json:"threads,omitempty"`
	Offload string `json:"offload,omitempty"`
	// StageLimit is another member of them.
	StageLimit string `json:"stage_limit,omitempty"`
	// States is the digest of the states with which the ranks continue, "" for none, and Repeats is
	// the attempt whose steps they repeat before, 0 for none.
	States  string `json:"states,omitempty"`
	Repeats int    `json:"repeats,omitempty"`
	// Checkpoint and Data are the digests of manifests, "" for none.
	Checkpoint string `json:"checkpoint,omitempty"`
	Data       string `json:"data,omitempty"`
	// Stream makes the ranks read the dataset through the node instead of from a folder.
	Stream bool `json:"stream,omitempty"`
	// Profile makes each rank measure a profile and send it at its end.
	Profile bool `json:"profile,omitempty"`
}

func (s *start) check() error {
	// Each number is bounded before it is used: sums and products of any others overflow.
	ok := s.World > 0 && s.World <= MaxRanks && s.Count > 0 && s.Count <= s.World && s.First >= 0 && s.First <= s.World-s.Count &&
		s.PerDevice > 0 && s.PerDevice <= s.Count && len(s.Claims) <= s.Count && s.Count == s.PerDevice*len(s.Claims) &&
		len(s.Nodes) > 0 && len(s.Nodes) <= maxNodes && s.Node >= 0 && s.Node < len(s.Nodes) && len(s.Args) > 0
	if !ok || s.Stream && s.Data == "" {
		return outboard.Errorf(outboard.Protocol, "start ranks", "a malformed request")
	}
	if _, err := compress.Parse(s.Gradients); err != nil {
		return outboard.Errorf(outboard.Protocol, "start ranks", "%w", err)
	}
	if _, err := s.resources().Check(); err != nil {
		return outboard.Errorf(outboard.Protocol, "start ranks", "%w", err)
	}
	return nil
}

func (s *start) resources() launch.Resources {
	return launch.Resources{Threads: s.Threads, Offload: s.Offload, StageLimit: s.StageLimit}
}

// A saved says that a node has the chunks of a checkpoint.
type saved struct {
	Step   int    `json:"step"`
	Digest string `json:"digest"`
}

// A profiled says that a node has the chunks of a rank's profile. The manager copies them before it
// reads the report of the ranks' end.
type profiled struct {
	Rank   int    `json:"rank"`
	Digest string `json:"digest"`
}

// An expired says that the time of ranks is over, and asks for devices of other nodes on which their
// next processes run. The node of rank 0 sends it.
type expired struct {
	Ranks []int `json:"ranks"`
}

// A moves answers an expired: if Granted, all ranks leave their states and end, and continue in the
// next attempt.
type moves struct {
	Granted bool `json:"granted"`
}

// A suspended says that a node has the chunks of the state that a rank has left for the next attempt.
// The manager copies them before it reads the report of the ranks' end.
type suspended struct {
	Rank   int    `json:"rank"`
	Digest string `json:"digest"`
}

// A kept answers a saved: the manager has the checkpoint too, or has an error.
type kept struct {
	Digest string `json:"digest"`
	Error  string `json:"error,omitempty"`
}

// A stop ends the ranks.
type stop struct {
	Reason string `json:"reason,omitempty"`
}

// A started says that the ranks' processes run.
type started struct{}

// A line is a line that a rank has written.
type line struct {
	Rank   int    `json:"rank"`
	Stderr bool   `json:"stderr,omitempty"`
	Text   string `json:"text"`
}

// An exited says that all ranks of the node have ended.
type exited struct {
	// Rank is the rank that failed first, with Status; -1: none.
	Rank   int    `json:"rank"`
	Status int    `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Killed says that the rank was killed from outside, within its limits.
	Killed bool `json:"killed,omitempty"`
	// AfterLoss says that another node's ranks had been lost, or had left, before that.
	AfterLoss bool `json:"after_loss,omitempty"`
	// Sums counts the compressed sums between this node and others.
	Sums compress.Stats `json:"sums,omitzero"`
}

// A writer writes messages; any number of goroutines may use it.
type writer struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *writer) send(m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return outboard.Errorf(outboard.Exhausted, "start ranks", "the request has %d bytes: want %d at most; shorten arguments and variables", len(text), maxMessage)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.out.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// receive reads a message.
func receive(r io.Reader) (message, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return message{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxMessage {
		return message{}, outboard.Errorf(outboard.Protocol, "training job", "a message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return message{}, err
	}
	return decodeMessage(text)
}

func decodeMessage(text []byte) (m message, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, outboard.Errorf(outboard.Protocol, "training job", "%w", err)
	}
	switch {
	case m.Start != nil:
		return m, m.Start.check()
	case m.Exited != nil:
		return m, m.Exited.Sums.Check()
	}
	return m, nil
}

// decodePurpose reads the header of a stream.
func decodePurpose(header []byte) (p purpose, err error) {
	if len(header) > maxText {
		return p, outboard.Errorf(outboard.Protocol, "training job", "a header of %d bytes", len(header))
	}
	if err := json.Unmarshal(header, &p); err != nil {
		return p, outboard.Errorf(outboard.Protocol, "training job", "%w", err)
	}
	if !validID(p.Job) || p.Attempt < 1 || p.From < 0 || p.From >= maxNodes {
		return p, outboard.Errorf(outboard.Protocol, "training job", "a malformed header")
	}
	return p, nil
}

// validID reports whether a text has the form of a job's ID.
func validID(id string) bool {
	if len(id) < 3 || len(id) > 40 {
		return false
	}
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// purpose returns the header of a stream that the node with a number opens to another node of the
// attempt.
func (k key) purpose(from int) purpose {
	return purpose{Job: k.job, Attempt: k.attempt, Manager: k.manager, From: from}
}

func (k key) String() string {
	return fmt.Sprintf("%s of node %s (attempt %d)", k.job, k.manager, k.attempt)
}
