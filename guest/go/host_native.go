//go:build !wasip1

package guest

import (
	"errors"
	"io"
	"math/rand/v2"
)

// A Host implements the host's side of this package in native builds, for a function's own
// tests. Package guesttest has an implementation.
type Host interface { //nolint:interfacebloat // It is the whole ABI.
	Import(name string) (handle int32, err error)
	Drop(handle int32)
	Call(handle int32, request []byte) ([]byte, error)
	Get(handle int32, key string) (value []byte, revision int64, err error)
	// Txn executes the encoded operations and returns the index of an operation whose condition is
	// not met, or -1.
	Txn(handle int32, ops []byte) (failed int, err error)
	Secret(handle int32) ([]byte, error)
	Arena(handle int32) ([]byte, error)
	// DeviceInfo describes a device.
	DeviceInfo(handle int32) ([]byte, error)
	// DeviceDo executes encoded commands. memory returns the memory to which they refer.
	DeviceDo(handle int32, list []byte, memory func(at, size uint32) ([]byte, bool)) (read []byte, err error)
	Meta(name string) (string, bool)
	// BodyRead reads the rest of the request. io.EOF is its end.
	BodyRead(b []byte) (int, error)
}

var host Host = absentHost{}

// SetHost sets the host and returns the previous one. nil means none.
func SetHost(h Host) Host {
	before := host
	host = h
	if h == nil {
		host = absentHost{}
	}
	return before
}

// absentHost is the host in a process without one.
type absentHost struct{}

var errNoHost = errors.New("no host: this is a native build; in tests use guesttest.Start")

func (absentHost) Import(string) (int32, error)             { return 0, errNoHost }
func (absentHost) Drop(int32)                               {}
func (absentHost) Call(int32, []byte) ([]byte, error)       { return nil, errNoHost }
func (absentHost) Get(int32, string) ([]byte, int64, error) { return nil, 0, errNoHost }
func (absentHost) Txn(int32, []byte) (int, error)           { return 0, errNoHost }
func (absentHost) Secret(int32) ([]byte, error)             { return nil, errNoHost }
func (absentHost) Arena(int32) ([]byte, error)              { return nil, errNoHost }
func (absentHost) DeviceInfo(int32) ([]byte, error)         { return nil, errNoHost }
func (absentHost) DeviceDo(int32, []byte, func(uint32, uint32) ([]byte, bool)) ([]byte, error) {
	return nil, errNoHost
}
func (absentHost) Meta(string) (string, bool)   { return "", false }
func (absentHost) BodyRead([]byte) (int, error) { return 0, io.EOF }

func hostAlloc(n int) []byte                                  { return make([]byte, n) }
func hostImport(name string) (int32, error)                   { return host.Import(name) }
func hostDrop(handle int32)                                   { host.Drop(handle) }
func hostCall(handle int32, request []byte) ([]byte, error)   { return host.Call(handle, request) }
func hostGet(handle int32, key string) ([]byte, int64, error) { return host.Get(handle, key) }
func hostTxn(handle int32, ops []byte) (int, error)           { return host.Txn(handle, ops) }
func hostSecret(handle int32) ([]byte, error)                 { return host.Secret(handle) }
func hostArena(handle int32) ([]byte, error)                  { return host.Arena(handle) }
func hostDevice(handle int32) ([]byte, error)                 { return host.DeviceInfo(handle) }
func hostMeta(name string) (string, bool)                     { return host.Meta(name) }

func hostBodyRead(b []byte) (int, error) { return host.BodyRead(b) }

// sent is the part of the response that the present call has sent.
var sent []byte

func hostSend(b []byte) error {
	sent = append(sent, b...)
	return nil
}

// collect runs a handler and returns its whole response.
func collect(h Handler, request []byte) ([]byte, error) {
	sent = nil
	b, err := h(request)
	if err != nil || len(sent) == 0 {
		return b, err
	}
	return append(sent, b...), nil
}

func hostRandom() uint64 { return rand.Uint64() }

// hostDo passes memory to the host by its index in the list; in WebAssembly it is passed by
// its address.
func hostDo(handle int32, list []byte, memory [][]byte) ([]byte, error) {
	return host.DeviceDo(handle, list, func(at, size uint32) ([]byte, bool) {
		if uint64(at) >= uint64(len(memory)) || uint64(size) != uint64(len(memory[at])) {
			return nil, false
		}
		return memory[at], true
	})
}

func addressOf(memory [][]byte) uint32 { return uint32(len(memory) - 1) }
