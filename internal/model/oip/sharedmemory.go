package oip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// shmFolder is the folder of the names of POSIX shared memory.
const shmFolder = "/dev/shm"

// Limits of the regions that are registered at once, by all clients and by one client.
const (
	maxRegions      = 256
	maxOwnedRegions = 64
)

// regions are the regions of system shared memory that clients have registered. Memory is read and
// written by system calls instead of being mapped: a client that truncates it makes a request fail,
// not the node.
type regions struct {
	enabled bool
	// key names the client of a request by its API key, "" for none.
	key func(context.Context) string

	mu  sync.Mutex
	all map[regionName]*region
}

// A regionName is the name that a client gave to a region: a client sees only its own regions.
type regionName struct{ owner, name string }

// A region is part of a shared memory object.
type region struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Offset uint64 `json:"offset"`
	Size   uint64 `json:"byte_size"`
	file   *os.File
}

func newRegions(enabled bool, key func(context.Context) string) *regions {
	return &regions{enabled: enabled, key: key, all: map[regionName]*region{}}
}

// owner returns the name of a request's client: by its API key, or else by its user on this
// machine.
func (r *regions) owner(ctx context.Context) string {
	if key := r.key(ctx); key != "" {
		return "key:" + key
	}
	uid, err := userOf(ctx)
	if err != nil {
		return "" // The client cannot have registered any region.
	}
	return "uid:" + strconv.FormatUint(uint64(uid), 10)
}

// register opens the memory that a client names. It must belong to the client's user, or be
// accessible to all users: the node may open memory that other users of this machine may not.
func (r *regions) register(ctx context.Context, x region) error {
	const op = "register shared memory"
	key := strings.TrimPrefix(x.Key, "/")
	switch {
	case !r.enabled:
		return errNoSharedMemory
	case x.Name == "" || len(x.Name) > 256:
		return outboard.Errorf(outboard.Invalid, op, "the region needs a name of at most 256 bytes")
	case key == "" || key == "." || key == ".." || strings.ContainsAny(key, "/\x00"):
		return outboard.Errorf(outboard.Invalid, op, "key %q is no name of shared memory", x.Key)
	case x.Size == 0 || x.Offset+x.Size < x.Offset:
		return outboard.Errorf(outboard.Invalid, op, "a region of %d bytes at %d", x.Size, x.Offset)
	}
	uid, err := userOf(ctx)
	if err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Join(shmFolder, key), unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return outboard.Errorf(outboard.Invalid, op, "key %q: %w", x.Key, err)
	}
	x.file = os.NewFile(uintptr(fd), key)
	info, err := x.file.Stat()
	if err == nil && (!info.Mode().IsRegular() || uint64(info.Size()) < x.Offset+x.Size) {
		err = outboard.Errorf(outboard.Invalid, op, "key %q has %d bytes, the region ends at %d", x.Key, info.Size(), x.Offset+x.Size)
	}
	if err == nil && !mayUse(info, uid) {
		err = outboard.Errorf(outboard.Denied, op, "key %q belongs to another user", x.Key)
	}
	if err == nil {
		err = r.add(r.owner(ctx), &x)
	}
	if err != nil {
		return errors.Join(err, x.file.Close())
	}
	return nil
}

// mayUse reports whether a user may read and write a shared memory object.
func mayUse(info os.FileInfo, uid uint32) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && (owner.Uid == uid || info.Mode().Perm()&0o006 == 0o006)
}

func (r *regions) add(owner string, x *region) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, owned := regionName{owner, x.Name}, 0
	for n := range r.all {
		if n.owner == owner {
			owned++
		}
	}
	if r.all[key] != nil {
		return outboard.Errorf(outboard.Conflict, "", "shared memory region %q is registered already", x.Name)
	}
	if len(r.all) >= maxRegions || owned >= maxOwnedRegions {
		return outboard.Errorf(outboard.Exhausted, "", "%d shared memory regions are registered, %d by this client: unregister some", len(r.all), owned)
	}
	r.all[key] = x
	return nil
}

// unregister closes a client's region, or all its regions for the name "".
func (r *regions) unregister(ctx context.Context, name string) error {
	if !r.enabled {
		return errNoSharedMemory
	}
	owner := r.owner(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, x := range r.all {
		if n.owner == owner && (name == "" || n.name == name) {
			_ = x.file.Close()
			delete(r.all, n)
		}
	}
	return nil
}

// list returns a client's regions ordered by name, only the named one unless name is "".
func (r *regions) list(ctx context.Context, name string) ([]region, error) {
	if !r.enabled {
		return nil, errNoSharedMemory
	}
	owner := r.owner(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []region{}
	for n, x := range r.all {
		if n.owner == owner && (name == "" || n.name == name) {
			list = append(list, *x)
		}
	}
	slices.SortFunc(list, func(a, b region) int { return strings.Compare(a.Name, b.Name) })
	if name != "" && len(list) == 0 {
		return nil, outboard.Errorf(outboard.NotFound, "", "there is no shared memory region %q", name)
	}
	return list, nil
}

// A regionUse is the place of a tensor in a region.
type regionUse struct {
	name         string
	offset, size uint64
}

// readRegion reads the extension's parameters. ok is false for a tensor outside of shared memory.
func readRegion(parameters map[string]json.RawMessage) (u regionUse, ok bool, err error) {
	if u.name, ok, err = parameter[string](parameters, "shared_memory_region"); err != nil || !ok {
		return u, ok, err
	}
	if u.offset, _, err = parameter[uint64](parameters, "shared_memory_offset"); err != nil {
		return u, true, err
	}
	if u.size, ok, err = parameter[uint64](parameters, "shared_memory_byte_size"); err == nil && !ok {
		err = fmt.Errorf("shared_memory_region needs shared_memory_byte_size")
	}
	return u, true, err
}

func (u *regionUse) json() string {
	name, err := json.Marshal(u.name)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(`,"parameters":{"shared_memory_region":%s,"shared_memory_offset":%d,"shared_memory_byte_size":%d}`, name, u.offset, u.size)
}

// message returns the place in gRPC's form, as json does for REST.
func (u *regionUse) message() map[string]*inference.InferParameter {
	number := func(n uint64) *inference.InferParameter {
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(n)}}
	}
	return map[string]*inference.InferParameter{
		"shared_memory_region": {ParameterChoice: &inference.InferParameter_StringParam{StringParam: u.name}},
		"shared_memory_offset": number(u.offset), "shared_memory_byte_size": number(u.size),
	}
}

// at returns the file of a region, and the offset in it of the place that a tensor uses.
func (r *regions) at(ctx context.Context, u *regionUse, size uint64) (*os.File, int64, error) {
	if !r.enabled {
		return nil, 0, errNoSharedMemory
	}
	owner := r.owner(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.all[regionName{owner, u.name}]
	switch {
	case x == nil:
		return nil, 0, errNoRegion(u.name)
	case size > u.size:
		return nil, 0, outboard.Errorf(outboard.Invalid, "", "it has %d bytes, and its shared_memory_byte_size is %d", size, u.size)
	case u.offset > x.Size || size > x.Size-u.offset:
		return nil, 0, outboard.Errorf(outboard.Invalid, "", "%d bytes at %d do not fit shared memory region %q, which has %d", size, u.offset, u.name, x.Size)
	}
	return x.file, int64(x.Offset + u.offset), nil
}

func errNoRegion(name string) error {
	return outboard.Errorf(outboard.Invalid, "", "there is no shared memory region %q", name)
}

// read copies the data of a tensor out of a region. A region may be much longer than the memory that
// it takes, since pages that were never written take none: the copy is reserved first.
func (r *regions) read(ctx context.Context, u *regionUse, held *reservation) ([]byte, error) {
	f, at, err := r.at(ctx, u, u.size)
	if err != nil {
		return nil, err
	}
	if err := held.add(ctx, int64(u.size)); err != nil {
		return nil, err
	}
	data := make([]byte, u.size)
	if _, err := f.ReadAt(data, at); err != nil {
		switch {
		case errors.Is(err, os.ErrClosed): // it was unregistered meanwhile
			return nil, errNoRegion(u.name)
		case errors.Is(err, io.EOF):
			err = errors.New("it was truncated")
		}
		return nil, outboard.Errorf(outboard.Invalid, "", "shared memory region %q: %w", u.name, err)
	}
	return data, nil
}

// write copies the data of a tensor into a region. It does not make the file longer.
func (r *regions) write(ctx context.Context, u *regionUse, data []byte) error {
	f, at, err := r.at(ctx, u, uint64(len(data)))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errNoRegion(u.name) // it was unregistered meanwhile
	}
	if info.Size() < at+int64(len(data)) {
		return outboard.Errorf(outboard.Invalid, "", "shared memory region %q was truncated", u.name)
	}
	if _, err = f.WriteAt(data, at); errors.Is(err, os.ErrClosed) {
		return errNoRegion(u.name)
	}
	return err
}

func (h *Handler) sharedMemoryRoutes() {
	const at = "/v2/systemsharedmemory"
	h.mux.HandleFunc("GET "+at+"/status", h.shmStatus)
	h.mux.HandleFunc("GET "+at+"/region/{region}/status", h.shmStatus)
	h.mux.HandleFunc("POST "+at+"/region/{region}/register", func(w http.ResponseWriter, r *http.Request) {
		var x region
		err := readSmall(r.Body, &x)
		if x.Name = r.PathValue("region"); err == nil {
			err = h.regions.register(r.Context(), x)
		}
		answerEmpty(w, err)
	})
	h.mux.HandleFunc("POST "+at+"/region/{region}/unregister", func(w http.ResponseWriter, r *http.Request) {
		answerEmpty(w, h.regions.unregister(r.Context(), r.PathValue("region")))
	})
	h.mux.HandleFunc("POST "+at+"/unregister", func(w http.ResponseWriter, r *http.Request) {
		answerEmpty(w, h.regions.unregister(r.Context(), ""))
	})
}

func answerEmpty(w http.ResponseWriter, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (h *Handler) shmStatus(w http.ResponseWriter, r *http.Request) {
	list, err := h.regions.list(r.Context(), r.PathValue("region"))
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, list)
}
