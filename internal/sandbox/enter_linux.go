package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bind is a folder of the host that the process may write to, or only read if ReadOnly is set.
// NoExec keeps the process from executing its files.
type Bind struct {
	Source, Target string
	NoExec         bool `json:",omitempty"`
	ReadOnly       bool `json:",omitempty"`
}

// Layer is a folder of the host of which the process may change a private copy: its writes lie in
// memory, at most Size bytes of it, and vanish with the process.
type Layer struct {
	Source, Target string
	Size           int64
}

// Config describes a sandbox to a process that was started for it. It is sent over a socket, so it
// has no pointers.
type Config struct {
	// Namespaces are the namespaces in which the process was started.
	Namespaces []Mechanism `json:"namespaces,omitempty"`
	// UID and GID are the user and group to which a process started by root changes; 0 keeps them.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Scratch is an empty folder of the host on which the root is mounted.
	Scratch string `json:"scratch,omitempty"`
	// Writable are the folders that the process may write to.
	Writable []Bind `json:"writable,omitempty"`
	// Layers are folders of which the process may change a private copy.
	Layers []Layer `json:"layers,omitempty"`
	// NoExec keeps the process from executing files that it has written to /tmp and /dev/shm.
	NoExec bool `json:"no_exec,omitempty"`
	// Fallback are folders that the process may write to if it has no private root.
	Fallback []string `json:"fallback,omitempty"`
	// Readable are paths beyond the system's libraries that the process may read.
	Readable []string `json:"readable,omitempty"`
	// Devices are patterns of device files beyond AcceleratorDevices.
	Devices []string `json:"devices,omitempty"`
	// Calls are numbers of system calls beyond the allow-list.
	Calls []uint32 `json:"calls,omitempty"`
	// TmpSize and ShmSize bound /tmp and /dev/shm, in bytes.
	TmpSize int64 `json:"tmp_size,omitempty"`
	ShmSize int64 `json:"shm_size,omitempty"`
	// Files, FileSize and Tasks bound open files, the size of a file in bytes, and
	// processes and threads of the user.
	Files    uint64 `json:"files,omitempty"`
	FileSize uint64 `json:"file_size,omitempty"`
	Tasks    uint64 `json:"tasks,omitempty"`
}

// Gap is a missing mechanism, with the reason.
type Gap struct {
	Mechanism Mechanism
	Err       error
}

// Inside is the sandbox that Enter has set up.
type Inside struct {
	Mechanisms []Mechanism
	Gaps       []Gap
	// Layered says that the Layers have the contents of their folders; otherwise they are empty.
	Layered bool
	program int // descriptor of this program
}

// OwnRoot reports whether the process has a private root: Writable folders are then at their
// Target, otherwise at their Source.
func (in *Inside) OwnRoot() bool { return in.has(Mounts) }

func (in *Inside) has(m Mechanism) bool { return slices.Contains(in.Mechanisms, m) }

// Enter isolates the calling thread, which it locks. Exec must follow: only that isolates the whole
// process. An error means that the thread is in an undefined state.
func Enter(c Config) (*Inside, error) {
	runtime.LockOSThread()
	in := &Inside{}
	var err error
	// The file may be replaced, or be out of reach later.
	if in.program, err = unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open this program: %w", err)
	}
	in.namespaces(&c)
	if err := limitResources(&c); err != nil {
		return nil, err
	}
	if err := in.dropPrivileges(&c); err != nil {
		return nil, err
	}
	if err := in.restrict(&c); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *Inside) add(m Mechanism, err error) {
	if err != nil {
		in.Gaps = append(in.Gaps, Gap{m, err})
		return
	}
	in.Mechanisms = append(in.Mechanisms, m)
}

var errNoNamespace = errors.New("this machine does not allow such a namespace")

// namespaces sets up the namespaces in which the process was started.
func (in *Inside) namespaces(c *Config) {
	have := map[Mechanism]bool{}
	for _, m := range c.Namespaces {
		have[m] = true
	}
	for _, m := range []Mechanism{Mounts, Processes, IPC, Hostname, Network} {
		var err error
		switch {
		case !have[m]:
			err = errNoNamespace
		case m == Mounts:
			in.Layered, err = enterRoot(c)
		case m == Hostname:
			err = unix.Sethostname([]byte("outboard"))
		}
		in.add(m, err)
	}
	if have[Identity] {
		in.add(Identity, nil)
	}
}

// maxSignals bounds queued signals and timers, of which the kernel allows a user some thousands.
const maxSignals = 1024

// limitResources sets the limits of resources. That of tasks is the user's: it is set where the process
// has a user of its own, or a user namespace, in which the kernel counts them anew (Linux 5.14).
func limitResources(c *Config) error {
	ownUser := c.UID != 0 || slices.Contains(c.Namespaces, Identity)
	for resource, most := range map[int]uint64{
		unix.RLIMIT_NOFILE: c.Files, unix.RLIMIT_FSIZE: c.FileSize, unix.RLIMIT_NPROC: c.Tasks, unix.RLIMIT_SIGPENDING: maxSignals,
	} {
		var limit unix.Rlimit
		if most == 0 || resource == unix.RLIMIT_NPROC && !ownUser {
			continue
		}
		if err := unix.Getrlimit(resource, &limit); err != nil {
			return fmt.Errorf("resource limit: %w", err)
		}
		if resource == unix.RLIMIT_NOFILE {
			// The kernel compares it with all files of the user that are passed over sockets and not
			// received yet: the node must be able to pass files after this process has reached it.
			most = min(most, limit.Max/2)
		}
		limit.Max = min(limit.Max, most)
		limit.Cur = min(limit.Cur, limit.Max)
		if resource != unix.RLIMIT_NOFILE {
			limit.Cur = limit.Max
		}
		if err := unix.Setrlimit(resource, &limit); err != nil {
			return fmt.Errorf("resource limit: %w", err)
		}
	}
	// No dumps of memory, and no precedence over other processes where the node's user may have it.
	for _, resource := range []int{unix.RLIMIT_CORE, unix.RLIMIT_NICE, unix.RLIMIT_RTPRIO} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{}); err != nil {
			return fmt.Errorf("resource limit: %w", err)
		}
	}
	return nil
}

// dropPrivileges drops every capability, and root's identity if c names another.
func (in *Inside) dropPrivileges(c *Config) error {
	if os.Geteuid() == 0 {
		if err := dropBoundingSet(); err != nil {
			return err
		}
	}
	if c.UID != 0 && in.OwnRoot() {
		err := setIdentity(c)
		if err != nil {
			return fmt.Errorf("become user %d: %w", c.UID, err)
		}
		in.add(Identity, nil)
	}
	if err := clearCapabilities(); err != nil {
		return err
	}
	// The change of the user has cleared the signal.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the parent: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// The child of an init may be the same user: without this it could open the init's memory, its
	// environment, which is the node's, and its files. Executing a program ends it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the init: %w", err)
	}
	return nil
}

// dropCapabilities drops the capabilities of this thread, and of programs that it executes as root.
func dropCapabilities() error {
	if err := dropBoundingSet(); err != nil {
		return err
	}
	return clearCapabilities()
}

func clearCapabilities() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// dropBoundingSet bounds the capabilities of programs that this thread executes to none, if the thread
// may do so: otherwise it is not root's.
func dropBoundingSet() error {
	for c := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // no such capability, nor any later one
		}
		if err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// setIdentity changes the user of this thread alone: package syscall would change it for all
// threads, but Exec keeps no other thread.
func setIdentity(c *Config) error {
	groups := make([]uint32, 0, 8)
	for _, g := range c.deviceGroups() {
		groups = append(groups, uint32(g))
	}
	list := uintptr(0)
	if len(groups) > 0 {
		list = uintptr(unsafe.Pointer(&groups[0]))
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), list, 0); errno != 0 {
		return fmt.Errorf("set groups: %w", errno)
	}
	runtime.KeepAlive(groups)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(c.GID), uintptr(c.GID), uintptr(c.GID)); errno != 0 {
		return fmt.Errorf("set group: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(c.UID), uintptr(c.UID), uintptr(c.UID)); errno != 0 {
		return fmt.Errorf("set user: %w", errno)
	}
	return nil
}

// restrict enforces Landlock and the allow-list of system calls.
func (in *Inside) restrict(c *Config) error {
	rules := Rules{Write: []string{}, Read: []string{"/proc/self/fd/" + strconv.Itoa(in.program)}}
	rules.Devices = c.devices()
	if in.OwnRoot() {
		rules.Read = append(rules.Read, "/")
		rules.Write = append(rules.Write, TmpDir, shmDir)
		for _, b := range c.Writable {
			if !b.ReadOnly {
				rules.Write = append(rules.Write, b.Target)
			}
		}
		for _, l := range c.Layers {
			rules.Write = append(rules.Write, l.Target)
		}
	} else {
		rules.Read = append(rules.Read, c.readable()...)
		rules.Read = append(rules.Read, "/proc")
		for _, b := range c.Writable {
			if b.ReadOnly {
				rules.Read = append(rules.Read, b.Source)
			} else {
				rules.Write = append(rules.Write, b.Source)
			}
		}
		rules.Write = append(rules.Write, c.Fallback...)
	}
	err := RestrictThread(rules)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return err
	}
	in.add(Landlock, err)
	// The filter comes last: it allows none of the calls above.
	err = allowCalls(c.Calls, in.OwnRoot())
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return err
	}
	in.add(Seccomp, err)
	return nil
}

// Exec executes this program again with the given arguments and environment, and with the given
// descriptors after the standard ones. It returns only if it fails.
//
// The first process of a PID namespace ignores most signals that it sends itself, so a crash would
// not end it. It therefore stays as the namespace's init and executes the program as its child:
// when either of them ends, all processes in the namespace end.
func (in *Inside) Exec(args, environ []string, files ...*os.File) error {
	if in.has(Processes) {
		return in.runChild(args, environ, files)
	}
	for _, f := range files {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep an inherited file: %w", err)
		}
	}
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	envv, err := syscall.SlicePtrFromStrings(environ)
	if err != nil {
		return err
	}
	empty, err := unix.BytePtrFromString("")
	if err != nil {
		return err
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(in.program), uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH, 0)
	runtime.KeepAlive(files)
	return executeError(errno)
}

// executeError adds the remedy if the sandbox's user may not execute the program.
func executeError(err error) error {
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("execute this program again as the sandbox's user: %w: make its file executable for all users (chmod a+x)", err)
	}
	return fmt.Errorf("execute this program again: %w", err)
}

// CrashStatus is the exit status of an init whose child was ended by a signal. It equals that of
// Go's runtime after a signal that it can't handle.
const CrashStatus = 2

// runChild executes the program as a child of this process, on this thread, whose
// restrictions it inherits, and exits as the child does.
func (in *Inside) runChild(args, environ []string, files []*os.File) error {
	attr := &syscall.ProcAttr{Env: environ, Files: []uintptr{0, 1, 2}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, err := syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(in.program), args, attr)
	if err != nil {
		return executeError(err)
	}
	for _, f := range files {
		_ = f.Close() // for the child alone, so that the other end notices its end
	}
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil) // also for orphans
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			os.Exit(CrashStatus) //nolint:forbidigo // an init only waits
		case ended == pid && status.Signaled():
			fmt.Fprintln(os.Stderr, "signal:", status.Signal())
			os.Exit(CrashStatus) //nolint:forbidigo // as above
		case ended == pid:
			os.Exit(status.ExitStatus()) //nolint:forbidigo // as above
		}
	}
}
