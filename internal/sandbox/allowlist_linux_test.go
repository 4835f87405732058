package sandbox

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var rewrite = flag.Bool("rewrite", false, "write the list of what a sandbox allows into docs/sandbox.md")

const (
	listDocument = "../../docs/sandbox.md"
	listBegin    = "<!-- The lists are made by: go test ./internal/sandbox -run TestAllowList -rewrite -->\n"
	listEnd      = "<!-- The end of the lists. -->\n"
)

// TestAllowList tries, from inside, every system call by its number, every path of the
// machine, every device file and every family of sockets: nothing but what the lists in
// docs/sandbox.md name succeeds.
func TestAllowList(t *testing.T) {
	c, n := newConfig(t)
	if !slices.Contains(n.List(), Mounts) {
		t.Skip("this machine allows no mount namespaces")
	}
	paths, err := json.Marshal(machinePaths(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Writable[0].Source, "paths"), paths, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, c, n, "every call")
	run(t, c, n, "every path")
	compareLists(t)
}

// maxCall is beyond the last system call of this kernel and some to come.
const maxCall = 1024

// uncalled are allowed calls that would end this process or confuse Go's runtime. That the
// process runs and ends shows that they are allowed.
var uncalled = []uint32{
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_CLOSE_RANGE,
	unix.SYS_SIGALTSTACK, unix.SYS_RT_SIGPROCMASK, unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_BRK,
	unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_UMASK,
}

// byArgument are calls that are allowed for some of their arguments.
var byArgument = []uint32{unix.SYS_CLONE, unix.SYS_FCNTL, unix.SYS_IOCTL, unix.SYS_PRCTL, unix.SYS_SECCOMP, unix.SYS_SOCKETPAIR}

// tryCalls makes every system call with arguments that none accepts. A call that the filter
// refuses fails for that, another one because of its arguments.
func tryCalls(c *Config) (failed []error) {
	runtime.LockOSThread()
	allowed := slices.Concat(commonCalls, nativeCalls, attributeCalls, nativeAttributeCalls, watchCalls, nativeWatchCalls, c.Calls)
	for number := range uint32(maxCall) {
		if slices.Contains(slices.Concat(uncalled, uncalledNative, byArgument), number) {
			continue
		}
		for _, foreign := range []uint32{0, foreignBit} {
			const wrong = ^uintptr(0)
			_, _, errno := unix.RawSyscall6(uintptr(number|foreign), wrong, wrong, wrong, wrong, wrong, wrong)
			refused := errno == unix.EPERM || errno == unix.EACCES || errno == unix.ENOSYS
			wanted := foreign != 0 && number|foreign != number || !slices.Contains(allowed, number)
			switch {
			case !refused && wanted:
				failed = append(failed, fmt.Errorf("system call %d: got %w, want it refused", number|foreign, errno))
			case refused && !wanted && errno != unix.ENOSYS: // which an older kernel says
				failed = append(failed, fmt.Errorf("system call %d is refused: %w", number|foreign, errno))
			}
			if foreignBit == 0 {
				break
			}
		}
	}
	return append(failed, tryArguments()...)
}

// tryArguments makes the calls that are allowed for some of their arguments with all values
// that matter.
func tryArguments() (failed []error) {
	for bit := range 32 {
		if flag := uintptr(1) << bit; flag&namespaceClone != 0 {
			expect(&failed, fmt.Sprintf("clone of flag %#x", flag), rawCall(unix.SYS_CLONE, flag), unix.EPERM)
		}
	}
	for option := range uintptr(256) {
		err := rawCall(unix.SYS_PRCTL, option, ^uintptr(0), ^uintptr(0))
		if !slices.Contains(processControls, uint32(option)) {
			expect(&failed, fmt.Sprintf("prctl %d", option), err, unix.EPERM)
		}
	}
	for family := range uintptr(64) {
		err := rawCall(unix.SYS_SOCKETPAIR, family, 1, 0)
		if family != unix.AF_UNIX {
			expect(&failed, fmt.Sprintf("a pair of family %d", family), err, unix.EACCES)
		}
		for kind := range uintptr(12) {
			expect(&failed, fmt.Sprintf("a socket of family %d, kind %d", family, kind), rawCall(unix.SYS_SOCKET, family, kind, 0), unix.EACCES)
		}
	}
	for bit := range 32 {
		if flag := uintptr(1) << bit; flag != unix.SECCOMP_FILTER_FLAG_TSYNC {
			expect(&failed, fmt.Sprintf("a filter of flag %#x", flag), rawCall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flag), unix.EPERM)
		}
	}
	expect(&failed, "a filter without a flag", rawCall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0), unix.EPERM)
	for _, request := range terminalControls {
		expect(&failed, fmt.Sprintf("ioctl %#x", request), rawCall(unix.SYS_IOCTL, 0, uintptr(request), 0), unix.EPERM)
	}
	return failed
}

// machinePaths are the paths of this machine: all of /dev, and other folders some levels
// deep; OUTBOARD_ATTACK_SESSIONS, as `make attack` sets it, makes that all levels.
func machinePaths(t *testing.T) []string {
	t.Helper()
	depth := 2
	if os.Getenv("OUTBOARD_ATTACK_SESSIONS") != "" {
		depth = 100
	}
	var paths []string
	_ = filepath.WalkDir("/", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // out of our reach as well
		}
		paths = append(paths, path)
		if e.IsDir() && (path == "/proc" || path == "/sys/devices" || !strings.HasPrefix(path, "/dev") && strings.Count(path, "/") >= depth && path != "/") {
			return fs.SkipDir
		}
		return nil
	})
	if len(paths) < 100 {
		t.Fatalf("only %d paths", len(paths))
	}
	return paths
}

// tryPaths opens every path of the machine for reading, and for writing.
func tryPaths(c *Config) (failed []error) {
	text, err := os.ReadFile("/cache/paths")
	if err != nil {
		return []error{err}
	}
	var paths []string
	if err := json.Unmarshal(text, &paths); err != nil {
		return []error{err}
	}
	devices := c.devices()
	visible := slices.Concat(c.readable(), devices, []string{"/proc", "/cache", "/layer", TmpDir, shmDir, "/dev/fd"})
	for _, path := range slices.Clone(visible) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			visible = append(visible, real) // shown with the link that leads to it
		}
	}
	for _, path := range paths {
		if tryOpen(path, unix.O_RDONLY|unix.O_NONBLOCK) == nil &&
			!slices.ContainsFunc(visible, func(v string) bool { return within(path, v) || within(v, path) }) {
			failed = append(failed, fmt.Errorf("%s can be read", path))
		}
		real, _ := filepath.EvalSymlinks(path) // units that are off are links to /dev/null
		if tryOpen(path, unix.O_WRONLY|unix.O_NONBLOCK) == nil && !slices.Contains(devices, real) && !within(real, "/proc") {
			failed = append(failed, fmt.Errorf("%s can be written", path))
		}
		if err := os.WriteFile(filepath.Join(path, "outboard-new"), nil, 0o600); err == nil &&
			!slices.Contains([]string{TmpDir, shmDir}, path) {
			failed = append(failed, fmt.Errorf("a file can be made in %s", path))
		}
	}
	return failed
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// compareLists compares the lists in the document with those of the sources, which the calls
// and paths above were compared with.
func compareLists(t *testing.T) {
	t.Helper()
	want := lists(t)
	text, err := os.ReadFile(listDocument)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), listBegin)
	got, after, ended := strings.Cut(rest, listEnd)
	if !ok || !ended {
		t.Fatalf("%s lacks its marks", listDocument)
	}
	if got == want {
		return
	}
	if !*rewrite {
		t.Fatalf("the lists in %s are not those of the sources; run `go test ./internal/sandbox -run TestAllowList -rewrite`", listDocument)
	}
	if err := os.WriteFile(listDocument, []byte(before+listBegin+want+listEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lists is the generated part of the document.
func lists(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n## Paths\n\nRead-only, as far as they exist on the machine:\n\n")
	writeList(&b, slices.Concat(libraries, configuration, hardware))
	b.WriteString("\nReadable and writable, of the worker's own: `/tmp`, `/dev/shm`, `/cache`; `/proc` is its PID\n" +
		"namespace's, read-only. `/sys` shows the interfaces of its own network namespace. Files and\n" +
		"folders of `/proc` that show what other programs do are covered by empty ones:\n\n")
	writeList(&b, activity)
	b.WriteString("\n## Device files\n\n")
	writeList(&b, slices.Concat(basicDevices, AcceleratorDevices))
	b.WriteString("\n## Sockets\n\nNo socket of any family can be made. Of pairs only those of `AF_UNIX`.\n\n## System calls\n\nOn every architecture:\n\n")
	writeList(&b, callNames(t, "calls_linux.go", "commonCalls"))
	b.WriteString("\nOn amd64 also:\n\n")
	writeList(&b, callNames(t, "calls_linux_amd64.go", "nativeCalls"))
	b.WriteString("\nOn arm64 also:\n\n")
	writeList(&b, callNames(t, "calls_linux_arm64.go", "nativeCalls"))
	b.WriteString("\nIf the worker has its own root (`mounts`), since Landlock does not restrict them:\n\n")
	writeList(&b, slices.Concat(callNames(t, "calls_linux.go", "attributeCalls"), callNames(t, "calls_linux_amd64.go", "nativeAttributeCalls")))
	b.WriteString("\nFor some of their arguments: `clone` without new namespaces, `fcntl` but for notices of folders and\n" +
		"leases of files, `ioctl` but for the requests that type into terminals or acquire them and for those\n" +
		"to sockets, `socketpair` of `AF_UNIX`, and `prctl` with\n\n")
	writeList(&b, callNames(t, "seccomp_linux.go", "processControls"))
	b.WriteString("\nUntil the driver is loaded, since Go's runtime needs them: `seccomp`, to refuse these calls, and\n\n")
	writeList(&b, slices.Concat(callNames(t, "calls_linux.go", "watchCalls"), callNames(t, "calls_linux_amd64.go", "nativeWatchCalls")))
	b.WriteString("\nThese fail with `ENOSYS`, for which callers have a substitute:\n\n")
	writeList(&b, callNames(t, "seccomp_linux.go", "unsupported"))
	b.WriteString("\nAll others fail with `EPERM`, or `EACCES` for sockets.\n\n")
	return b.String()
}

// writeList writes names as code, in lines of at most 100 columns.
func writeList(b *strings.Builder, names []string) {
	line := ""
	for i, name := range names {
		word := "`" + name + "`"
		if i < len(names)-1 {
			word += ","
		}
		if line != "" && len(line)+1+len(word) > 100 {
			b.WriteString(line + "\n")
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	b.WriteString(line + "\n")
}

// callNames are the names in a table of the sources: SYS_OPENAT becomes openat.
func callNames(t *testing.T, file, table string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	object := parsed.Scope.Lookup(table)
	if object == nil {
		t.Fatalf("%s has no %s", file, table)
	}
	var names []string
	ast.Inspect(object.Decl.(ast.Node), func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			name, isCall := strings.CutPrefix(s.Sel.Name, "SYS_")
			if isCall {
				name = strings.ToLower(name)
			}
			names = append(names, name)
		}
		return true
	})
	if len(names) == 0 {
		t.Fatal(errors.New(file + ": " + table + " is empty"))
	}
	slices.Sort(names)
	return names
}

// An operator's own call is allowed, and no other with it.
func TestMoreCalls(t *testing.T) {
	c, n := newConfig(t)
	c.Calls = []uint32{unix.SYS_PERSONALITY}
	run(t, c, n, "every call")
}
