//go:build !wasip1

// Package guesttest provides an in-memory host for a function's own tests, which run natively and
// without Outboard: buckets, functions, secrets, arenas and devices.
//
//	host := guesttest.Start(t)
//	host.Bucket("seats").Set("math", "2")
//	response, err := guest.Call(request)
//
// A function may import only the resources that the test has created, as with the imports of an
// app's manifest.
package guesttest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	guest "github.com/outboard-run/outboard/guest/go"
)

// A Host implements guest.Host. It is not safe for concurrent use, as a function is not.
type Host struct {
	// Functions are the functions that may be called.
	Functions map[string]guest.Handler
	// Outgoing are the hosts to which requests may be sent, by "NAME" or "NAME:PORT", with their
	// handlers.
	Outgoing map[string]http.Handler
	// Secrets and Arenas may be imported.
	Secrets, Arenas map[string][]byte
	// Values is the metadata of a call: "method", headers, parameters of the route's path.
	Values map[string]string
	// Rest is the rest of the request, for functions that read it as a stream.
	Rest io.Reader

	buckets map[string]*Bucket
	devices map[string]*Device
	handles []string // the name of handle i+1, "" once dropped
}

// Start installs a new Host until the test ends.
func Start(t testing.TB) *Host {
	h := &Host{
		Functions: map[string]guest.Handler{}, Outgoing: map[string]http.Handler{}, Secrets: map[string][]byte{}, Arenas: map[string][]byte{},
		Values: map[string]string{}, buckets: map[string]*Bucket{}, devices: map[string]*Device{},
	}
	before := guest.SetHost(h)
	t.Cleanup(func() { guest.SetHost(before) })
	return h
}

// Bucket returns the bucket of that name, and allows the function to import it.
func (h *Host) Bucket(name string) *Bucket {
	if h.buckets[name] == nil {
		h.buckets[name] = &Bucket{entries: map[string]entry{}}
	}
	return h.buckets[name]
}

// OpenImports returns the names of imports that are not closed.
func (h *Host) OpenImports() []string {
	return slices.DeleteFunc(slices.Clone(h.handles), func(name string) bool { return name == "" })
}

// Import is called by package guest, as are the methods below.
func (h *Host) Import(name string) (int32, error) {
	if !h.has(name) {
		return 0, errors.New("import " + name + ": the test's host has none")
	}
	h.handles = append(h.handles, name)
	return int32(len(h.handles)), nil
}

func (h *Host) has(name string) bool {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "function":
		return h.Functions[rest] != nil
	case "outgoing":
		return h.Outgoing[rest] != nil
	case "bucket":
		return h.buckets[rest] != nil
	case "secret":
		return h.Secrets[rest] != nil
	case "arena":
		return h.Arenas[rest] != nil
	case "device":
		return h.devices[rest] != nil
	}
	return false
}

// resourceOf returns the name of a handle's resource, without its kind.
func (h *Host) resourceOf(handle int32, kind string) (string, error) {
	if handle < 1 || int(handle) > len(h.handles) {
		return "", errors.New("no such handle")
	}
	name, ok := strings.CutPrefix(h.handles[handle-1], kind+":")
	if !ok {
		return "", errors.New("the handle is none of a " + kind)
	}
	return name, nil
}

// Drop releases a handle.
func (h *Host) Drop(handle int32) {
	if name, err := h.resourceOf(handle, "device"); err == nil && name != "" {
		h.devices[name].drop(handle)
	}
	if handle >= 1 && int(handle) <= len(h.handles) {
		h.handles[handle-1] = ""
	}
}

// Call calls a function, or sends a request.
func (h *Host) Call(handle int32, request []byte) ([]byte, error) {
	if name, err := h.resourceOf(handle, "outgoing"); err == nil {
		return serve(h.Outgoing[name], request)
	}
	name, err := h.resourceOf(handle, "function")
	if err != nil {
		return nil, err
	}
	return h.Functions[name](slices.Clone(request))
}

// serve returns a handler's response to an HTTP message.
func serve(handler http.Handler, message []byte) ([]byte, error) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(slices.Clone(message))))
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	var answer bytes.Buffer
	err = w.Result().Write(&answer)
	return answer.Bytes(), err
}

// Get reads a key.
func (h *Host) Get(handle int32, key string) ([]byte, int64, error) {
	name, err := h.resourceOf(handle, "bucket")
	if err != nil {
		return nil, 0, err
	}
	e := h.buckets[name].get(key)
	return slices.Clone(e.value), e.revision, nil
}

// Txn executes a transaction.
func (h *Host) Txn(handle int32, ops []byte) (int, error) {
	name, err := h.resourceOf(handle, "bucket")
	if err != nil {
		return 0, err
	}
	return h.buckets[name].txn(ops)
}

// Secret reads a secret.
func (h *Host) Secret(handle int32) ([]byte, error) {
	name, err := h.resourceOf(handle, "secret")
	return h.Secrets[name], err
}

// Arena returns an arena.
func (h *Host) Arena(handle int32) ([]byte, error) {
	name, err := h.resourceOf(handle, "arena")
	return h.Arenas[name], err
}

// DeviceInfo describes a device.
func (h *Host) DeviceInfo(handle int32) ([]byte, error) {
	name, err := h.resourceOf(handle, "device")
	if err != nil {
		return nil, err
	}
	return []byte(h.devices[name].Info), nil
}

// DeviceDo executes a list of commands.
func (h *Host) DeviceDo(handle int32, list []byte, memory func(at, size uint32) ([]byte, bool)) ([]byte, error) {
	name, err := h.resourceOf(handle, "device")
	if err != nil {
		return nil, err
	}
	return h.devices[name].do(handle, list, memory)
}

// BodyRead reads the rest of the request from Rest.
func (h *Host) BodyRead(b []byte) (int, error) {
	if h.Rest == nil {
		return 0, io.EOF
	}
	return h.Rest.Read(b)
}

// Meta returns the value of a metadata key.
func (h *Host) Meta(name string) (string, bool) {
	value, ok := h.Values[name]
	return value, ok
}
