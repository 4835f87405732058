package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Environment of the test's own processes: the one that enters, and the one inside.
const (
	enterVariable  = "SANDBOX_TEST_ENTER"
	insideVariable = "SANDBOX_TEST_INSIDE"
)

// filesVariable is how many files the process that enters may open.
const filesVariable = "SANDBOX_TEST_FILES"

// inheritedSocket is the descriptor of a socket that the test has made, as a worker has one of its node.
const inheritedSocket = 3

// raceVariable keeps the race detector from delaying the end of each process.
const raceVariable = "GORACE=atexit_sleep_ms=0"

// attackers are programs that run inside, by name. Each returns what it achieved although
// nothing may be achieved.
var attackers = map[string]func(c *Config) []error{
	"files": attackFiles, "attributes": attackAttributes, "devices": attackDevices, "sockets": attackSockets, "neighbours": attackNeighbours, "processes": attackProcesses,
	"calls": attackCalls, "tasks": attackTasks, "memory": attackMemory, "layers": attackLayers, "limits of the user": attackLimits, "watches": attackWatches, "every call": tryCalls, "every path": tryPaths,
	"nothing": func(*Config) []error { return nil },
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(chrootVariable); dir != "" {
		_ = os.Unsetenv(chrootVariable)
		os.Exit(attackInChroot(dir))
	}
	if text := os.Getenv(enterVariable); text != "" {
		var c Config
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		if hard, err := strconv.ParseUint(os.Getenv(filesVariable), 10, 64); err == nil {
			_ = syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: hard, Max: hard}) // the attack would notice an error
		}
		in, err := Enter(c)
		if err == nil {
			list, _ := json.Marshal(in.Mechanisms)
			var inherited []*os.File
			if _, err := unix.FcntlInt(inheritedSocket, unix.F_SETFD, unix.FD_CLOEXEC); err == nil {
				inherited = append(inherited, os.NewFile(inheritedSocket, "socket"))
			}
			err = in.Exec(os.Args, []string{insideVariable + "=" + os.Getenv("SANDBOX_TEST_ATTACK"), "LIST=" + string(list), "CONFIG=" + text, "WANT=" + os.Getenv("WANT"), filesVariable + "=" + os.Getenv(filesVariable), raceVariable}, inherited...)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if name := os.Getenv(insideVariable); name != "" {
		var c Config
		_ = json.Unmarshal([]byte(os.Getenv("CONFIG")), &c)
		failed := append(attackers[name](&c), missingWanted()...)
		for _, err := range failed {
			fmt.Println(err)
		}
		os.Exit(len(failed))
	}
	os.Exit(m.Run())
}

// newConfig is a sandbox as a worker has it.
func newConfig(t *testing.T) (Config, Namespaces) {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"scratch", "cache", "layer"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n := DetectNamespaces()
	c := Config{
		Namespaces: n.List(), Scratch: filepath.Join(dir, "scratch"), TmpSize: 8 << 20, ShmSize: 4 << 20,
		Writable: []Bind{{Source: filepath.Join(dir, "cache"), Target: "/cache"}}, Layers: []Layer{{filepath.Join(dir, "layer"), "/layer", 4 << 20}},
		Files: 1024, FileSize: 4 << 20, Tasks: 256,
	}
	if os.Geteuid() == 0 && !n.User() {
		c.UID, c.GID = 0x70000001, 0x70000001
		for _, path := range []string{c.Writable[0].Source, c.Layers[0].Source} {
			if err := os.Chown(path, c.UID, c.GID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, nodeFile), []byte("known"), 0o600); err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(c.Layers[0].Source, "known")
	if err := errors.Join(os.WriteFile(known, []byte("known"), 0o600), os.Chown(known, max(c.UID, os.Getuid()), max(c.GID, os.Getgid()))); err != nil {
		t.Fatal(err)
	}
	return c, n
}

// run has an attacker run inside, and reports what it achieved.
func run(t *testing.T, c Config, n Namespaces, attack string) {
	t.Helper()
	cmd, err := command(os.Args[0], c, n, attack)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	inherited := os.NewFile(uintptr(ends[0]), "socket")
	defer inherited.Close()
	defer unix.Close(ends[1])
	cmd.ExtraFiles = []*os.File{inherited}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// command is the process that enters a sandbox and has an attacker run inside.
func command(program string, c Config, n Namespaces, attack string) (*exec.Cmd, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), enterVariable+"="+string(text), "SANDBOX_TEST_ATTACK="+attack, "CLOUD_SECRET=x", raceVariable)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	n.Apply(cmd.SysProcAttr)
	return cmd, nil
}

// An attacker inside a sandbox of all mechanisms reaches nothing.
func TestAttacks(t *testing.T) {
	c, n := newConfig(t)
	if len(n.List()) == 0 {
		t.Skip("this machine allows no namespaces")
	}
	for name := range attackers {
		if !strings.HasPrefix(name, "every") { // see TestAllowList
			t.Run(name, func(t *testing.T) { run(t, c, n, name) })
		}
	}
	if text, err := os.ReadFile(filepath.Join(c.Layers[0].Source, "known")); err != nil || string(text) != "known" {
		t.Errorf("a layer's file was changed: %q, %v", text, err)
	}
	if entries, err := os.ReadDir(c.Layers[0].Source); err != nil || len(entries) != 1 {
		t.Errorf("a layer's folder was changed: %v, %v", entries, err)
	}
	left, err := os.ReadDir(c.Scratch)
	if err != nil || len(left) > 0 {
		t.Errorf("left outside: %v, %v", left, err)
	}
}

// A sandbox that an ordinary user's node makes holds as that of root does. Its processes are the
// node's user.
func TestAttacksOfAnOrdinaryUser(t *testing.T) {
	const nobody = 65534
	if os.Geteuid() != 0 {
		return // TestAttacks is this test.
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestAttacks$", "-test.v")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// Without namespaces, Landlock and the filter of system calls still hold.
func TestAttacksWithoutNamespaces(t *testing.T) {
	c, _ := newConfig(t)
	c.Namespaces, c.UID, c.GID = nil, 0, 0
	for _, name := range []string{"devices", "sockets", "calls", "attributes"} {
		t.Run(name, func(t *testing.T) { run(t, c, Namespaces{}, name) })
	}
}

func inside(m Mechanism) bool { return strings.Contains(os.Getenv("LIST"), string(m)) }

func expect(failed *[]error, what string, err error, want ...error) {
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	if err == nil || len(want) > 0 {
		*failed = append(*failed, fmt.Errorf("%s: got %w, want it refused", what, err))
	}
}

func tryOpen(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func attackFiles(*Config) (failed []error) {
	for _, path := range []string{"/etc/shadow", "/etc/passwd", "/etc/hostname", "/root", "/home", "/work", "/var", "/run", "/boot", "/sys/kernel"} {
		expect(&failed, "read "+path, tryOpen(path, unix.O_RDONLY))
	}
	for _, path := range []string{"/new", "/usr/new", "/etc/new", "/dev/new", "/proc/sys/kernel/hostname", "/proc/self/oom_score_adj"} {
		expect(&failed, "write "+path, tryOpen(path, unix.O_WRONLY|unix.O_CREAT))
	}
	for _, path := range []string{"/cache/new", "/tmp/new", "/dev/shm/new"} {
		if err := tryOpen(path, unix.O_WRONLY|unix.O_CREAT); err != nil {
			failed = append(failed, fmt.Errorf("write %s: %w", path, err))
		}
	}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "CLOUD_SECRET") {
			failed = append(failed, errors.New("the environment came along"))
		}
	}
	return failed
}

// nodeFile is a file of the node's user beside the sandbox's scratch folder.
const nodeFile = "file"

// attackAttributes changes files that it may not open for writing.
func attackAttributes(c *Config) (failed []error) {
	file := filepath.Join(filepath.Dir(c.Scratch), nodeFile)
	expect(&failed, "truncate a file of the node", unix.Truncate(file, 0))
	for _, path := range []string{file, "/usr", "/dev/null"} {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			continue
		}
		expect(&failed, "change the mode of "+path, unix.Chmod(path, st.Mode&0o7777))
		expect(&failed, "change the times of "+path, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{st.Atim, st.Mtim}, 0))
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			expect(&failed, "change the mode of the open "+path, unix.Fchmod(fd, st.Mode&0o7777))
			unix.Close(fd)
		}
	}
	return failed
}

// attackLayers changes files that are its own to change, and only for itself.
func attackLayers(c *Config) (failed []error) {
	if len(c.Layers) == 0 {
		return nil
	}
	if text, err := os.ReadFile("/layer/known"); err != nil || string(text) != "known" {
		failed = append(failed, fmt.Errorf("a layer's file: %q, %w", text, err))
	}
	if err := errors.Join(os.WriteFile("/layer/known", []byte("changed"), 0o600), os.Remove("/layer/known")); err != nil {
		failed = append(failed, fmt.Errorf("change a layer's file: %w", err))
	}
	if err := tryOpen("/layer/new", unix.O_WRONLY|unix.O_CREAT); err != nil {
		failed = append(failed, fmt.Errorf("write to a layer: %w", err))
	}
	if err := os.WriteFile("/layer/large", make([]byte, 5<<20), 0o600); err == nil {
		failed = append(failed, errors.New("a layer of 4 MiB has 5"))
	}
	return failed
}

func attackDevices(c *Config) (failed []error) {
	expect(&failed, "open /dev/tty", tryOpen("/dev/tty", unix.O_RDWR))
	expect(&failed, "open the primary node of a graphics device", tryOpen("/dev/dri/card0", unix.O_RDWR))
	known := map[string]bool{"/dev/shm": true, "/dev/fd": true}
	for _, path := range c.devices() {
		known[path] = true
	}
	_ = filepath.WalkDir("/dev", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || known[path] || entry.Type()&os.ModeSymlink != 0 {
			return nil //nolint:nilerr // not to be seen at all
		}
		expect(&failed, "open "+path, tryOpen(path, unix.O_RDONLY|unix.O_NONBLOCK))
		return nil
	})
	if sid, err := unix.Getsid(0); err != nil || sid == 0 && !inside(Processes) {
		failed = append(failed, fmt.Errorf("session %d, %w", sid, err))
	}
	for fd := range 3 {
		if unix.IoctlSetInt(fd, unix.TIOCSCTTY, 0) == nil {
			failed = append(failed, errors.New("a terminal became the controlling one"))
		}
	}
	c1 := byte('x')
	expect(&failed, "type into a terminal", unix.IoctlSetInt(0, unix.TIOCSTI, int(c1)), unix.EPERM)
	return failed
}

func attackSockets(*Config) (failed []error) {
	for family := range 48 {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
			for _, protocol := range []int{0, unix.IPPROTO_MPTCP, unix.IPPROTO_UDP} {
				if fd, err := unix.Socket(family, kind, protocol); err == nil {
					failed = append(failed, fmt.Errorf("a socket of family %d, kind %d: %d", family, kind, fd))
				}
			}
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return append(failed, err)
	}
	failed = append(failed, askSocket(inheritedSocket)...)
	expect(&failed, "connect one of a pair", unix.Connect(pair[0], &unix.SockaddrUnix{Name: "/run/socket"}))
	if interfaces, err := net.Interfaces(); inside(Network) && err == nil && len(interfaces) > 1 {
		failed = append(failed, fmt.Errorf("network interfaces: %v", interfaces))
	}
	return failed
}

// attackNeighbours reads what the machine's other programs do.
func attackNeighbours(*Config) (failed []error) {
	if !inside(Mounts) || !inside(Network) {
		return nil
	}
	interfaces, err := filepath.Glob("/sys/class/net/*")
	more, _ := filepath.Glob("/sys/devices/*/net/*")
	for _, path := range append(interfaces, more...) {
		if filepath.Base(path) != "lo" {
			failed = append(failed, fmt.Errorf("%s is visible", path))
		}
	}
	text, _ := os.ReadFile("/sys/class/net/lo/statistics/rx_bytes")
	if err != nil || len(text) > 0 && string(text) != "0\n" {
		failed = append(failed, fmt.Errorf("the loopback device has received %q: %w", text, err))
	}
	for _, name := range activity {
		text, _ := os.ReadFile("/proc/" + name)
		if entries, _ := os.ReadDir("/proc/" + name); len(text)+len(entries) > 0 {
			failed = append(failed, fmt.Errorf("/proc/%s shows %.40q, %v", name, text, entries))
		}
	}
	for _, path := range []string{"/sys/devices/system/cpu/online", "/sys/bus", "/sys/class/mem", "/sys/dev/char", "/sys/module"} {
		if err := tryOpen(path, unix.O_RDONLY); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", path, err))
		}
	}
	for _, path := range []string{"/sys/kernel", "/sys/fs", "/sys/firmware", "/sys/devices/devices", "/sys/devices/kernel"} {
		expect(&failed, path, tryOpen(path, unix.O_RDONLY))
	}
	return failed
}

// askSocket asks a socket for the network interfaces of the network in which it was made, which for an
// inherited one is the node's.
func askSocket(socket int) (failed []error) {
	for _, request := range []uint{unix.SIOCGIFCONF, unix.SIOCGIFNAME, unix.SIOCGIFINDEX, unix.SIOCGIFHWADDR, unix.SIOCGIFADDR, unix.SIOCETHTOOL, siocgskns} {
		frame := [5]uint64{0, 0, 1} // struct ifreq, of the first interface
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), uintptr(request), uintptr(unsafe.Pointer(&frame)))
		expect(&failed, fmt.Sprintf("request %#x of a socket", request), errno, unix.EPERM)
	}
	return failed
}

// siocgskns opens the network namespace of a socket.
const siocgskns = 0x894c

func attackProcesses(c *Config) (failed []error) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 1 && pid != os.Getpid() {
			failed = append(failed, fmt.Errorf("process %d is visible", pid))
		}
	}
	for pid := 2; pid < 1000; pid++ {
		// A thread of the init is this process's user as well: the one that has entered the sandbox,
		// which need not be the first one.
		own := func() bool {
			return unix.Tgkill(os.Getpid(), pid, 0) == nil || inside(Processes) && unix.Tgkill(1, pid, 0) == nil
		}
		// A thread of this process may end between the two looks.
		if unix.Kill(pid, 0) == nil && !own() && unix.Kill(pid, 0) == nil {
			failed = append(failed, fmt.Errorf("process %d can be signalled", pid))
		}
	}
	if inside(Processes) {
		failed = append(failed, attackInit()...)
	}
	expect(&failed, "survive the parent", unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0), unix.EPERM)
	expect(&failed, "become root", rawCall(unix.SYS_SETUID, 0), unix.EPERM)
	if c.UID != 0 && unix.Getuid() != c.UID {
		failed = append(failed, fmt.Errorf("user %d", unix.Getuid()))
	}
	return failed
}

// attackInit opens what belongs to the init of the namespace, some of whose threads keep their
// capabilities, and which has the node's environment.
func attackInit() (failed []error) {
	const tasks = "/proc/1/task/"
	threads, err := os.ReadDir(tasks)
	if err != nil || len(threads) == 0 {
		return []error{fmt.Errorf("the init has %d threads: %w", len(threads), cmp.Or(err, os.ErrNotExist))}
	}
	for _, thread := range threads {
		for _, name := range []string{"environ", "maps", "mem", "auxv", "root/.", "cwd/.", "fd/0"} {
			path := tasks + thread.Name() + "/" + name
			if tryOpen(path, unix.O_RDONLY) == nil {
				failed = append(failed, fmt.Errorf("%s can be opened", path))
			}
		}
	}
	return failed
}

// attackTasks starts processes until it can't.
func attackTasks(c *Config) (failed []error) {
	if c.UID == 0 && !inside(Identity) {
		return nil // of a user that others share
	}
	var started []*os.Process
	for range c.Tasks {
		cmd := exec.Command("/bin/sleep", "1000")
		err := cmd.Start()
		if err != nil {
			expect(&failed, "start a process", err, unix.EAGAIN)
			break
		}
		started = append(started, cmd.Process)
	}
	if n := len(started); n == 0 || n == int(c.Tasks) {
		failed = append(failed, fmt.Errorf("%d processes beside this one, of %d tasks", n, c.Tasks))
	}
	for _, p := range started {
		_ = p.Kill()
	}
	return failed
}

// attackLimits uses what the kernel allows a user, of which the node's other processes need some where
// the user is the same.
func attackLimits(*Config) (failed []error) {
	_, err := unix.InotifyInit1(unix.IN_CLOEXEC) // which shows, too, which of the machine's files others open
	expect(&failed, "make an instance of inotify", err, unix.EPERM)
	for n := 0; ; n++ {
		var timer int32
		_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&timer)))
		if errno == 0 && n <= maxSignals {
			continue
		}
		expect(&failed, "make a timer", errno, unix.EAGAIN)
		break
	}
	return append(failed, passFiles()...)
}

// passFiles passes files over sockets until it can't. As many must be left for the node.
func passFiles() (failed []error) {
	hard, err := strconv.Atoi(os.Getenv(filesVariable))
	if err != nil {
		return nil
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return []error{err}
	}
	passed, rights := 0, unix.UnixRights(ends[0], ends[0], ends[0], ends[0], ends[0], ends[0], ends[0], ends[0])
	for ; passed < hard; passed += 8 {
		if err := unix.Sendmsg(ends[1], []byte{0}, rights, nil, 0); err != nil {
			expect(&failed, "pass files", err, unix.ETOOMANYREFS)
			return failed
		}
	}
	return append(failed, fmt.Errorf("%d files are passed, of %d that the node may pass", passed, hard))
}

// A node whose user may open few files can pass files to its processes whatever a worker does.
func TestFilesInFlight(t *testing.T) {
	c, n := newConfig(t)
	if len(n.List()) == 0 {
		t.Skip("this machine allows no namespaces")
	}
	t.Setenv(filesVariable, "200")
	run(t, c, n, "limits of the user")
}

func attackCalls(*Config) (failed []error) {
	for name, call := range map[string][]uintptr{
		"ptrace": {unix.SYS_PTRACE, unix.PTRACE_TRACEME}, "setsid": {unix.SYS_SETSID}, "setpgid": {unix.SYS_SETPGID},
		"unshare": {unix.SYS_UNSHARE, unix.CLONE_NEWUSER}, "mount": {unix.SYS_MOUNT}, "bpf": {unix.SYS_BPF}, "keyctl": {unix.SYS_KEYCTL},
		"add_key": {unix.SYS_ADD_KEY}, "perf_event_open": {unix.SYS_PERF_EVENT_OPEN}, "userfaultfd": {unix.SYS_USERFAULTFD},
		"io_uring_setup": {unix.SYS_IO_URING_SETUP, 1}, "pidfd_open": {unix.SYS_PIDFD_OPEN, 1}, "setns": {unix.SYS_SETNS},
		"process_vm_readv": {unix.SYS_PROCESS_VM_READV, 1}, "personality": {unix.SYS_PERSONALITY, 0xffffffff}, "syslog": {unix.SYS_SYSLOG, 10},
		"clone of a namespace": {unix.SYS_CLONE, unix.CLONE_NEWUSER}, "clone3": {unix.SYS_CLONE3}, "shmget": {unix.SYS_SHMGET},
		"another architecture's call": {0x40000000 | unix.SYS_GETPID},
	} {
		expect(&failed, name, rawCall(call[0], call[1:]...), unix.EPERM, unix.ENOSYS, unix.EACCES)
	}
	// Each program that anyone of the machine starts is an access to the folder.
	folder, err := unix.Open("/usr/bin", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return append(failed, err)
	}
	defer unix.Close(folder)
	const dnAccess = 1
	expect(&failed, "notices of a folder", rawCall(unix.SYS_FCNTL, uintptr(folder), unix.F_NOTIFY, dnAccess), unix.EPERM)
	expect(&failed, "a lease of a file", rawCall(unix.SYS_FCNTL, uintptr(folder), unix.F_SETLEASE, unix.F_RDLCK), unix.EPERM)
	return failed
}

func rawCall(number uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0)
	if _, _, errno := unix.RawSyscall(number, args[0], args[1], args[2]); errno != 0 {
		return errno
	}
	return nil
}

// attackMemory tries to leave or use more than a bounded amount of files.
func attackMemory(*Config) (failed []error) {
	for path, most := range map[string]int{"/tmp/large": 8 << 20, "/dev/shm/large": 4 << 20} {
		f, err := os.Create(path)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		size := 0
		block := make([]byte, 1<<20)
		for err == nil && size < 64<<20 {
			var n int
			n, err = f.Write(block)
			size += n
		}
		if size > most {
			failed = append(failed, fmt.Errorf("%s has %d bytes, want at most %d", path, size, most))
		}
	}
	return failed
}

func TestParseMechanisms(t *testing.T) {
	for text, want := range map[string]int{"": 0, "none": 0, "all": len(Mechanisms) - 1, "mounts, seccomp": 2} {
		if got, err := ParseMechanisms(text); err != nil || len(got) != want {
			t.Errorf("%q: got %v, %v, want %d", text, got, err, want)
		}
	}
	if _, err := ParseMechanisms("walls"); err == nil {
		t.Error("an unknown name was taken")
	}
	if got := Missing([]Mechanism{Mounts, Cgroup}, []Mechanism{Mounts}); len(got) != 1 || got[0] != Cgroup {
		t.Errorf("missing: %v", got)
	}
}
