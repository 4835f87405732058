package job

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/train/launch"
)

// folderPrefix begins the names of the folders of this node's ranks.
func (h *Host) folderPrefix() string { return "outboard-job-" + h.opts.Owner + "-" }

// sweep ends the processes of ranks that an earlier process of this node left, and removes their
// folders and, if they had a user of their own, its shared memory. The ranks themselves have ended with
// that process (launch), and everything in a control group when this node's groups were opened
// (cgroup.Open). The rest are processes that ranks have started without control groups.
func (h *Host) sweep() {
	if h.opts.Owner == "" {
		return
	}
	parent := os.TempDir()
	entries, err := os.ReadDir(parent)
	if err != nil {
		h.opts.Log.Warn("folders of earlier ranks are not removed", "error", err)
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), h.folderPrefix()) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		owner, ok := folderOwner(dir)
		if !ok || !isOurs(owner) {
			continue // Any user may create a folder of that name.
		}
		endProcesses(func(pid int) bool { return belongs(pid, dir, owner) })
		var shared error
		if owner != uint32(os.Geteuid()) { // a user that these ranks had alone
			shared = removeLeftovers(owner)
		}
		err := errors.Join(shared, launch.RemoveFolder(dir))
		h.opts.Log.Info("removed what earlier ranks left", "dir", dir, "error", err)
	}
}

// folderOwner returns the owner of a folder; false if dir is not a folder.
func folderOwner(dir string) (uid uint32, ok bool) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return 0, false
	}
	return fileOwner(dir)
}

// fileOwner returns the owner of a file, folder or link; false if there is none.
func fileOwner(path string) (uid uint32, ok bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Uid, true
}

// isOurs reports whether a user may own folders of ranks: the node's user, or a user that a node
// that runs as root gives to ranks.
func isOurs(uid uint32) bool {
	self := os.Geteuid()
	return int(uid) == self || self == 0 && uid >= firstUID && uid < firstUID+uids
}

// sweepPasses bounds how often endProcesses searches for processes that were started meanwhile, and
// endLimit how long it waits for each to end: a process in a driver's call can't be ended before it
// returns.
const (
	sweepPasses = 10
	endLimit    = 5 * time.Second
)

// endProcesses ends the processes that belong to ranks.
func endProcesses(belongs func(pid int) bool) {
	for range sweepPasses {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return
		}
		ended := 0
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err == nil && pid != os.Getpid() && endProcess(pid, belongs) {
				ended++
			}
		}
		if ended == 0 {
			return
		}
	}
}

// endProcess ends a process if it belongs to ranks, and reports whether it did. If the number is
// reused meanwhile, the new process is not ended.
func endProcess(pid int, belongs func(pid int) bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if !belongs(pid) || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return false
	}
	for limit := time.Now().Add(endLimit); ; {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(time.Until(limit).Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return true
		}
	}
}

// belongs reports whether a process is one of the owner's, and works in a folder of ranks or was
// started with the socket there in its environment.
func belongs(pid int, dir string, owner uint32) bool {
	if startedByRanks(pid, dir, owner) {
		return true
	}
	uid, ok := userOf(pid)
	cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	return ok && uid == owner && err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/"))
}

// startedByRanks reports whether a process is one of the owner's, and was started with the socket of a
// folder of ranks in its environment.
func startedByRanks(pid int, dir string, owner uint32) bool {
	if uid, ok := userOf(pid); !ok || uid != owner {
		return false
	}
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(entry []byte) bool {
		return string(entry) == socketVariable+"="+filepath.Join(dir, ranksSocket)
	})
}
