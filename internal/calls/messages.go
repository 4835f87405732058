package calls

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// The messages between a node and a process that carries its calls, by internal/ipc. The version
// Handover defines their meaning.

// The requests of a node, and their replies.
const (
	msgStart    = "start" // begin to follow the pool: Ready
	msgServe    = "serve" // accept connections on the files: empty
	msgPause    = "pause" // accept none: a file with the state of the policies
	msgRestore  = "take"  // restore the state of the policies from the file: empty
	msgInFlight = "held"  // a file with the calls in flight in other processes; no reply
	msgDrain    = "drain" // send callers elsewhere, and end after the last call: InFlight
	msgMoved    = "moved" // another process reaches the program of the endpoint ID now; no reply
	msgPeer     = "peer"  // a node's connection, from which Data was read; no reply
	msgSibling  = "near"  // a sibling's link; no reply
	msgHTTP     = "http"  // a connection for the tables; no reply
	msgPing     = "ping"  // respond: empty
	msgLocate   = "where" // find the endpoint of the stream ID: its ID, or "". Also from process to node
)

// The requests of a process.
const (
	msgState    = "state"    // a connection to the pool's table; no reply
	msgOffer    = "offer"    // a program offers services: Endpoint with its ID
	msgSettled  = "settled"  // the program of the endpoint ID is reached here; no reply
	msgWithdraw = "withdraw" // the endpoint ID is gone: empty
	msgIdentify = "identify" // check the credential ID: the ID that it proves, or ""
	msgAdmit    = "admit"    // the process with the number Process connects: its Admission as ID
	msgLink     = "link"     // connect to the sibling of that number: a file
	msgLeft     = "left"     // the last call is over; a file with the counters: empty
)

// A body is the body of any message; the type of the message says which fields count.
type body struct {
	Config   *Config            `json:"config,omitempty"`
	Ready    *Ready             `json:"ready,omitempty"`
	InFlight *InFlight          `json:"flying,omitempty"`
	Endpoint *services.Endpoint `json:"endpoint,omitempty"`
	Previous string             `json:"previous,omitempty"`
	ID       string             `json:"id,omitempty"`
	Process  int                `json:"process,omitempty"`
	Data     []byte             `json:"data,omitempty"`
}

// bodyOf reads the body of a reply, and closes its files.
func bodyOf(m *ipc.Message) (body, error) {
	defer m.Close()
	var b body
	err := m.Decode(&b)
	return b, err
}

// detachFile returns a message's only file, nil if there is none, and closes the rest.
func detachFile(m *ipc.Message) *os.File {
	f := m.File()
	m.Close()
	return f
}

// maxState bounds the state that one process passes to another in a file.
const maxState = 256 << 20

// encodeFile writes v into a memory file.
func encodeFile(name string, v any) (*os.File, error) {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(v); err != nil {
		return nil, fmt.Errorf("pass %s: %w", name, err)
	}
	return ipc.NewFile(name, text.Bytes())
}

// errNoFile is the error of a message without the file that its type requires.
var errNoFile = outboard.Errorf(outboard.Protocol, "calls", "no file came along")

// decodeFile decodes a file written by encodeFile, and closes it.
func decodeFile(f *os.File, v any) error {
	if f == nil {
		return errNoFile
	}
	defer f.Close()
	text, err := ipc.ReadFile(f, maxState)
	if err != nil {
		return fmt.Errorf("receive %T: %w", v, err)
	}
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(v); err != nil {
		return fmt.Errorf("receive %T: %w", v, err)
	}
	return nil
}
