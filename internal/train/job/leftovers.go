package job

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/train/launch"
)

// sharedMemoryDir has the named shared memory of all users of a machine (shm_open(3)). Ranks of one
// node may write there, since they share memory with each other.
const sharedMemoryDir = "/dev/shm"

// removeLeftovers ends the processes of a user of ranks, and removes its shared memory, which would
// stay until the machine restarts. It is called when the ranks have ended; the user belongs to
// these ranks alone.
func removeLeftovers(uid uint32) error {
	endProcesses(func(pid int) bool {
		owner, ok := userOf(pid)
		return ok && owner == uid
	})
	return errors.Join(removeOwned(sharedMemoryDir, uid), removeSystemV(uid))
}

// userOf returns the effective user of a process. The owner of its folder in /proc does not tell:
// it is root if the process has made itself undumpable (prctl(2)).
func userOf(pid int) (uint32, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, false
	}
	_, rest, found := bytes.Cut(text, []byte("\nUid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := strings.Fields(string(line)) // real, effective, saved, of the file system
	if !found || len(ids) != 4 {
		return 0, false
	}
	uid, err := strconv.ParseUint(ids[1], 10, 32)
	return uint32(uid), err == nil
}

// removeOwned removes the files of a user in a folder.
func removeOwned(dir string, uid uint32) error {
	folder, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if owner, ok := fileOwner(filepath.Join(dir, e.Name())); ok && owner == uid {
			err = errors.Join(err, launch.RemoveAt(folder, e.Name()))
		}
	}
	return err
}

// A systemVKind is a kind of objects of System V that outlive their processes.
type systemVKind struct {
	list   string // in /proc/sysvipc
	remove uintptr
	third  bool // IPC_RMID is the third argument, not the second
}

var systemVKinds = []systemVKind{{"shm", unix.SYS_SHMCTL, false}, {"msg", unix.SYS_MSGCTL, false}, {"sem", unix.SYS_SEMCTL, true}}

// removeSystemV removes a user's shared memory, queues and semaphores of System V.
func removeSystemV(uid uint32) error {
	var errs []error
	for _, kind := range systemVKinds {
		text, err := os.ReadFile("/proc/sysvipc/" + kind.list)
		if errors.Is(err, os.ErrNotExist) {
			continue // this kernel has none
		}
		errs = append(errs, err)
		for _, id := range systemVOf(string(text), uid) {
			arguments := [3]uintptr{id, unix.IPC_RMID, 0}
			if kind.third {
				arguments = [3]uintptr{id, 0, unix.IPC_RMID}
			}
			if _, _, errno := unix.Syscall(kind.remove, arguments[0], arguments[1], arguments[2]); errno != 0 && errno != unix.EINVAL && errno != unix.EIDRM {
				errs = append(errs, errno)
			}
		}
	}
	return errors.Join(errs...)
}

// systemVOf returns the identifiers of the objects of a user in a list of /proc/sysvipc, whose
// columns its first line names. The user is the creator, which a process can't change.
func systemVOf(text string, uid uint32) (ids []uintptr) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Scan()
	creator := -1
	for i, name := range strings.Fields(lines.Text()) {
		if name == "cuid" {
			creator = i
		}
	}
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if creator < 2 || len(columns) <= creator || columns[creator] != strconv.FormatUint(uint64(uid), 10) {
			continue
		}
		if id, err := strconv.ParseUint(columns[1], 10, 31); err == nil {
			ids = append(ids, uintptr(id))
		}
	}
	return ids
}
