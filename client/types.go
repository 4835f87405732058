package client

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
)

// Status describes a node.
type Status struct {
	Node    outboard.NodeID `json:"node"`
	Version string          `json:"version"`
	// Addr is the address at which other nodes reach the node.
	Addr    string    `json:"addr"`
	Data    string    `json:"data"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Devices is the number of devices that the node offers.
	Devices int `json:"devices"`
	// GRPC is the address at which the node serves plain gRPC to this machine, "" for none.
	GRPC string `json:"grpc,omitempty"`
	// HTTP is the address at which the node serves requests to apps, "" for none.
	HTTP string `json:"http,omitempty"`
	// Models is the address at which the node serves models besides HTTP, "" for none.
	Models string `json:"models,omitempty"`
	// Keepers are the nodes that keep the pool's state, or should: those of them that Client.Nodes does
	// not list are away. It is empty where one node or an existing cluster keeps it.
	Keepers []outboard.NodeID `json:"keepers,omitempty"`
	// Waiting are the requests for leases that wait for devices of the pool, in their order.
	Waiting []QueuedRequest `json:"waiting,omitempty"`
	// Clocks are the nodes whose clocks differ from this node's by a minute or more.
	Clocks []ClockOffset `json:"clocks,omitempty"`
	// Problems are the parts of the node that do not work.
	Problems []HealthProblem `json:"problems,omitempty"`
}

// A ClockOffset is the difference between the clock of another node and that of the node that
// reports it.
type ClockOffset struct {
	Node outboard.NodeID `json:"node"`
	// Ahead is negative for a clock that is behind.
	Ahead Duration `json:"ahead"`
}

// A QueuedRequest is a request for leases that waits until devices are free.
type QueuedRequest struct {
	// Holder is the node that requests the leases, Program what it will run with them.
	Holder  outboard.NodeID `json:"holder"`
	Program string          `json:"program,omitempty"`
	// Count is the number of devices that are requested together.
	Count    int               `json:"count"`
	Selector outboard.Selector `json:"selector"`
	// Memory is the part of each device's memory that is requested, 0 for whole devices.
	Memory outboard.Bytes `json:"memory"`
	// Since is the time of the request by the holder's clock, zero if the holder does not report it.
	Since time.Time `json:"since,omitzero"`
}

// A HealthProblem is a part of a node that does not work.
type HealthProblem struct {
	// Part is the name of a plane, or of one of its services.
	Part string `json:"part"`
	// Text describes the problem.
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
}

// A Device is a device of the pool with the leases on it.
type Device struct {
	outboard.Device
	// Free is the memory that is not leased.
	Free outboard.Bytes `json:"free"`
	// Leases are the valid leases on the device.
	Leases []outboard.Grant `json:"leases,omitempty"`
}

// A Session is a live use of one of the node's devices.
type Session struct {
	ID     outboard.SessionID `json:"id"`
	Lease  outboard.LeaseID   `json:"lease"`
	Device outboard.DeviceID  `json:"device"`
	Holder outboard.NodeID    `json:"holder"`
	// Program is the holder's description of the program.
	Program string `json:"program,omitempty"`
	// Worker is the process ID of the session's worker.
	Worker int `json:"worker"`
	// Via is the transport of the session: "shm" or "tcp".
	Via     string    `json:"via"`
	Started time.Time `json:"started"`
	// Stats is the worker's latest report, nil before the first one.
	Stats *SessionStats `json:"stats,omitempty"`
}

// SessionStats are counted from a session's start, except for Memory.
type SessionStats struct {
	// Memory is the device memory that the session has allocated now.
	Memory outboard.Bytes `json:"memory"`
	// Calls counts the calls of the accelerator API that the worker has executed.
	Calls uint64 `json:"calls"`
	// BytesIn counts bytes from the program, BytesOut bytes to it.
	BytesIn  uint64 `json:"bytes_in"`
	BytesOut uint64 `json:"bytes_out"`
}

// A Token lets one machine join the pool.
type Token struct {
	Token string `json:"token"`
	// Addr is the address at which to join.
	Addr    string    `json:"addr"`
	Expires time.Time `json:"expires"`
}

// A TokenRequest is the body of POST /v1/tokens.
type TokenRequest struct {
	TTL Duration `json:"ttl,omitempty"`
}

// A Duration is a time.Duration with a text as its JSON form, "1m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// A Failure is an error in JSON.
type Failure struct {
	Op   string        `json:"op,omitempty"`
	Kind outboard.Kind `json:"kind"`
	Text string        `json:"error"`
	// Problems are the mistakes in an app that was rejected.
	Problems []Problem `json:"problems,omitempty"`
}

// FailureOf returns err in the form for JSON.
func FailureOf(err error) *Failure {
	return &Failure{Kind: outboard.KindOf(err), Text: err.Error(), Problems: ProblemsOf(err)}
}

// Err returns the failure as an error.
func (f *Failure) Err() error {
	if len(f.Problems) > 0 {
		return &outboard.Error{Kind: f.Kind, Err: &ProblemsError{Problems: f.Problems}}
	}
	return outboard.Errorf(f.Kind, "", "%s", f.Text)
}

// HTTPStatus returns the HTTP status of a response that carries an error of a kind.
func HTTPStatus(kind outboard.Kind) int {
	switch kind {
	case outboard.Invalid:
		return http.StatusBadRequest
	case outboard.NotFound, outboard.NoDevice:
		return http.StatusNotFound
	case outboard.Denied:
		return http.StatusForbidden
	case outboard.Busy, outboard.Conflict, outboard.LeaseLost:
		return http.StatusConflict
	case outboard.Exhausted:
		return http.StatusTooManyRequests
	case outboard.Unreachable, outboard.NoPool:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

func decodeError(response *http.Response) error {
	if response.Request.Method == http.MethodHead && response.StatusCode == http.StatusNotFound {
		return outboard.Errorf(outboard.NotFound, "", "%s: not found", response.Request.URL.Path) // there is no body
	}
	var f Failure
	if err := json.NewDecoder(response.Body).Decode(&f); err != nil || f.Text == "" {
		return outboard.Errorf(outboard.Protocol, "ask the node", "HTTP status %s", response.Status)
	}
	if f.Kind == outboard.Other {
		f.Kind = kindOfStatus(response.StatusCode)
	}
	return f.Err()
}

// kindOfStatus returns the kind of an error of which only the HTTP status is known, as for a
// foreign interface.
func kindOfStatus(status int) outboard.Kind {
	switch status {
	case http.StatusBadRequest:
		return outboard.Invalid
	case http.StatusNotFound:
		return outboard.NotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return outboard.Denied
	case http.StatusTooManyRequests:
		return outboard.Busy
	case http.StatusServiceUnavailable:
		return outboard.Unreachable
	}
	return outboard.Other
}

// Link is the network from one node to another, measured by the first in the background (see
// `outboard up --probe-budget`). Times are nanoseconds in JSON.
type Link struct {
	// From is the measuring node, To the other one.
	From outboard.NodeID `json:"from"`
	To   outboard.NodeID `json:"to"`
	// RTT is the median round-trip time of the last probes, RTTSpread the distance of their
	// quartiles, and MinRTT the shortest one: the excess of RTT over it is queueing on the path.
	RTT       time.Duration `json:"rtt_ns"`
	RTTSpread time.Duration `json:"rtt_spread_ns"`
	MinRTT    time.Duration `json:"min_rtt_ns"`
	// Forward and Backward are the bandwidths towards To and back, in bytes/s; ForwardSpread and
	// BackwardSpread are the distances of their quartiles. Short bursts measure them: they are
	// lower bounds. 0 means not measured.
	Forward        float64 `json:"forward_bytes_per_s"`
	Backward       float64 `json:"backward_bytes_per_s"`
	ForwardSpread  float64 `json:"forward_spread_bytes_per_s"`
	BackwardSpread float64 `json:"backward_spread_bytes_per_s"`
	// Loss is the fraction of the packets that was retransmitted, 0 to 1.
	Loss float64 `json:"loss"`
	// Samples is the number of probes behind the values, Measured the time of the last probe.
	Samples  int       `json:"samples"`
	Measured time.Time `json:"measured"`
}

// Queueing returns how much longer a round trip takes now than at best: the load of the path.
func (l *Link) Queueing() time.Duration { return max(0, l.RTT-l.MinRTT) }
