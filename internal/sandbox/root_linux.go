package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Folders inside the sandbox.
const (
	// TmpDir is a private file system that vanishes with the process.
	TmpDir = "/tmp"
	shmDir = "/dev/shm"
)

// libraries are the folders of drivers, their compilers and their libraries. Home folders and the
// folders of services are not among them.
var libraries = []string{
	"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt", "/nix/store", "/run/opengl-driver",
}

// configuration are the files of /etc that loaders and drivers read.
var configuration = []string{
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/OpenCL", "/etc/alternatives", "/etc/localtime",
	"/etc/nvidia", "/etc/rocm",
}

// hardware are the folders of /sys that describe processors and devices.
var hardware = []string{"/sys/bus", "/sys/class", "/sys/dev", hardwareRoot, "/sys/module"}

// hardwareRoot is the folder of hardware to which the others have links.
const hardwareRoot = "/sys/devices"

// basicDevices are the device files without state of the machine.
var basicDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// AcceleratorDevices are the device files of accelerators' drivers, as patterns. Of a graphics device
// they are its render nodes: by a primary node (card0) a process may become the master of the
// device, and show what it wants on the operator's screen.
var AcceleratorDevices = []string{
	"/dev/dri/renderD*", "/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/kfd", "/dev/accel/*", "/dev/dxg", "/dev/mali*", "/dev/apex_*",
}

// devices returns the device files of a sandbox.
func (c *Config) devices() []string {
	paths := slices.Clone(basicDevices)
	for _, pattern := range append(slices.Clone(AcceleratorDevices), c.Devices...) {
		found, _ := filepath.Glob(pattern) // a bad pattern finds nothing
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeDevice != 0 && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// deviceGroups returns the groups that may use the sandbox's device files.
func (c *Config) deviceGroups() []int {
	var groups []int
	for _, path := range c.devices() {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&0o060 == 0o060 && st.Gid != 0 && !slices.Contains(groups, int(st.Gid)) {
			groups = append(groups, int(st.Gid))
		}
	}
	return groups
}

// readable returns the host's paths that the sandbox shows read-only.
func (c *Config) readable() []string {
	return slices.Concat(libraries, configuration, hardware, c.Readable)
}

// root is a root file system under construction.
type root struct{ dir string }

// enterRoot builds a root in the mount namespace of this process and makes it the process's root.
// Writable folders and layers lie at their Target afterwards. layered reports whether this kernel
// could show the contents of layers.
func enterRoot(c *Config) (layered bool, err error) {
	if err := privateMounts(); err != nil {
		return false, fmt.Errorf("private mounts: %w", err)
	}
	r := root{dir: c.Scratch}
	if err := mountTmpfs(r.dir, 1<<20, 0o755); err != nil {
		return false, fmt.Errorf("root: %w", err)
	}
	for _, path := range slices.Concat(libraries, configuration) {
		if err := r.bindReadOnly(path); err != nil {
			return false, err
		}
	}
	if err := r.machine(c); err != nil {
		return false, err
	}
	for _, path := range c.Readable {
		if err := r.bindReadOnly(path); err != nil {
			return false, err
		}
	}
	if err := errors.Join(r.system(c), r.writable(c)); err != nil {
		return false, err
	}
	if layered, err = r.layers(c); err != nil {
		return false, err
	}
	return layered, r.pivot()
}

// privateMounts makes every mount of this mount namespace private: no mount below reaches
// another namespace.
func privateMounts() error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// "/" is not a mount point: this process was started in a chroot.
	outer, err := openNamespaceRoot()
	if err != nil {
		return err
	}
	return unix.Close(outer)
}

// openNamespaceRoot makes every mount of this mount namespace private and opens the namespace's
// root, which no path inside a chroot reaches. It uses a separate thread: setns(2) to a mount
// namespace, even the current one, changes the root of the calling thread to the namespace's, and
// requires a thread that shares its root with no other.
func openNamespaceRoot() (int, error) {
	type result struct {
		fd  int
		err error
	}
	opened := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fd, err := enterNamespaceRoot()
		opened <- result{fd, err}
	}()
	r := <-opened
	return r.fd, r.err
}

// enterNamespaceRoot is openNamespaceRoot on the calling thread, whose root it changes.
func enterNamespaceRoot() (int, error) {
	namespace, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mount namespace: %w", err)
	}
	defer unix.Close(namespace)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return -1, fmt.Errorf("root of the thread: %w", err)
	}
	if err := unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
		return -1, fmt.Errorf("leave the chroot: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fmt.Errorf("outside of the chroot: %w", err)
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("outside of the chroot: %w", err)
	}
	return fd, nil
}

// machine adds the folders that describe the machine's hardware. With a network namespace of its own the
// process gets those of a file system that is mounted in it. They lack the network interfaces of the
// host, with their addresses and the number of bytes that went through them.
func (r root) machine(c *Config) error {
	if slices.Contains(c.Namespaces, Network) && r.mountSysfs() == nil {
		return nil
	}
	// A container that covers parts of its own /sys may not mount one. It shows the container's interfaces.
	for _, path := range hardware {
		if err := r.bindReadOnly(path); err != nil {
			return err
		}
	}
	return nil
}

// mountSysfs mounts a sysfs on one of the hardware folders, and binds these folders from it, that one
// last: it covers the whole, so that the rest is out of reach.
func (r root) mountSysfs() error {
	whole := r.at(hardwareRoot)
	if err := r.makeDir(whole); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	if err := unix.Mount("sysfs", whole, "sysfs", flags, ""); err != nil {
		return err
	}
	for _, path := range hardware {
		source := filepath.Join(whole, filepath.Base(path))
		if path == hardwareRoot {
			continue
		}
		if _, err := os.Lstat(source); errors.Is(err, fs.ErrNotExist) {
			continue // not on this machine
		}
		if err := r.bindAs(source, path, true); err != nil {
			return err
		}
	}
	return r.bindAs(filepath.Join(whole, filepath.Base(hardwareRoot)), hardwareRoot, true)
}

// system adds /proc, /dev and /tmp.
func (r root) system(c *Config) error {
	for _, dir := range []string{"proc", "dev/shm", "tmp"} {
		if err := r.makeDir(r.at(dir)); err != nil {
			return err
		}
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", r.at("proc"), "proc", flags|unix.MS_RDONLY, ""); err != nil {
		// Mounting fails in a container that covers parts of its own /proc.
		if err := r.bindReadOnly("/proc"); err != nil {
			return err
		}
	}
	for _, path := range c.devices() {
		if err := r.bind(path, path); err != nil {
			return err
		}
	}
	if err := r.coverActivity(); err != nil {
		return err
	}
	if err := os.Symlink("/proc/self/fd", r.at("dev/fd")); err != nil {
		return err
	}
	return errors.Join(mountTmpfs(r.at(TmpDir), c.TmpSize, 0o1777), mountTmpfs(r.at(shmDir), c.ShmSize, 0o1777),
		r.protect(c.NoExec, TmpDir, shmDir))
}

// activity are files and folders of /proc in which any user of the machine reads what its other programs
// and users do, such as the times of key strokes: those that containers cover (runc's masked paths),
// and the like. A line of stat has the counts of interrupts, vmstat those of page faults, locks the
// files that others have locked.
var activity = []string{
	"acpi", "asound", "buddyinfo", "bus/input", "diskstats", "interrupts", "irq", "kcore", "key-users", "keys", "latency_stats", "locks",
	"pagetypeinfo", "pressure", "sched_debug", "schedstat", "scsi", "slabinfo", "softirqs", "stat", "timer_list", "timer_stats", "vmstat",
	"zoneinfo",
}

// coverActivity covers those files and folders with empty ones.
func (r root) coverActivity() error {
	for _, name := range activity {
		at := r.at("proc/" + name)
		info, err := os.Lstat(at)
		switch {
		case err != nil:
			continue // not on this machine, or covered already
		case info.IsDir():
			err = unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "nr_inodes=1,mode=555")
		default:
			err = unix.Mount(r.at("dev/null"), at, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("cover %s: %w", at, err)
		}
	}
	return nil
}

// protect keeps the process from executing files in folders.
func (r root) protect(noExec bool, paths ...string) error {
	if !noExec {
		return nil
	}
	for _, path := range paths {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC}
		if err := unix.MountSetattr(-1, r.at(path), unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("protect %s: %w", path, err)
		}
	}
	return nil
}

// layers adds folders of which the process may change a private copy: overlays whose upper layer
// lies in memory. On a kernel without such overlays (Linux before 5.11 without root) the folders
// are empty.
func (r root) layers(c *Config) (layered bool, err error) {
	layered = true
	for _, l := range c.Layers {
		at := r.at(l.Target)
		if err := r.makeDir(at); err != nil {
			return false, err
		}
		// The upper layer is out of reach once the overlay covers it.
		if err := mountTmpfs(at, l.Size, 0o700); err != nil {
			return false, err
		}
		if err := r.overlay(c, l); err != nil {
			layered = false
			err = errors.Join(os.Remove(filepath.Join(at, "work")), os.Remove(filepath.Join(at, "upper")), os.Chown(at, c.UID, c.GID))
			if err != nil {
				return false, err
			}
		}
	}
	return layered, nil
}

// overlay mounts an overlay over a file system in memory at its target. The paths in the options
// are descriptors: a folder's name may have commas and colons.
func (r root) overlay(c *Config, l Layer) error {
	at := r.at(l.Target)
	lower, err := unix.Open(l.Source, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(lower)
	memory, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(memory)
	upper := fmt.Sprintf("/proc/self/fd/%d/upper", memory)
	if err := errors.Join(os.Mkdir(upper, 0o700), os.Mkdir(fmt.Sprintf("/proc/self/fd/%d/work", memory), 0o700)); err != nil {
		return err
	}
	if err := os.Chown(upper, c.UID, c.GID); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=/proc/self/fd/%d,upperdir=%s,workdir=/proc/self/fd/%d/work", lower, upper, memory)
	if slices.Contains(c.Namespaces, Identity) {
		options += ",userxattr" // required in a user namespace
	}
	return unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
}

func (r root) writable(c *Config) error {
	for _, b := range c.Writable {
		if err := r.bind(b.Source, b.Target); err != nil {
			return err
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if b.ReadOnly {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if err := unix.MountSetattr(-1, r.at(b.Target), unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("protect %s: %w", b.Target, err)
		}
		if err := r.protect(b.NoExec, b.Target); err != nil {
			return err
		}
	}
	return nil
}

func (r root) at(path string) string { return filepath.Join(r.dir, path) }

// bindReadOnly adds a path of the host, read-only. A path that does not exist is left out; a symbolic link
// is added as such, together with its target.
func (r root) bindReadOnly(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil //nolint:nilerr // not on this machine
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return r.addLink(path)
	}
	if r.isVisible(path) {
		return nil
	}
	if err := r.bindAs(path, path, info.IsDir()); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(-1, r.at(path), unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("protect %s: %w", path, err)
	}
	return nil
}

// addLink adds a symbolic link, and its target unless that is visible already.
func (r root) addLink(path string) error {
	at := r.at(path)
	if _, err := os.Lstat(at); err == nil {
		return nil // visible by a folder above it
	}
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	if err := r.makeDir(filepath.Dir(at)); err != nil {
		return err
	}
	if err := os.Symlink(target, at); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && !r.isVisible(real) {
		return r.bindReadOnly(real)
	}
	return nil
}

// isVisible reports whether path is visible inside already.
func (r root) isVisible(path string) bool {
	var inside, outside unix.Stat_t
	return unix.Stat(r.at(path), &inside) == nil && unix.Stat(path, &outside) == nil &&
		inside.Dev == outside.Dev && inside.Ino == outside.Ino
}

// bind mounts a file or folder of the host, with everything mounted below it.
func (r root) bind(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	return r.bindAs(source, target, info.IsDir())
}

// bindAs is bind for a source that is known to be a folder or not.
func (r root) bindAs(source, target string, isDir bool) error {
	at := r.at(target)
	mountPoint := r.makeFile
	if isDir {
		mountPoint = r.makeDir
	}
	if err := mountPoint(at); err != nil {
		return err
	}
	if err := unix.Mount(source, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	return nil
}

// makeDir makes a folder, and those above it that are missing. Unlike os.MkdirAll it does not query
// them first: at each start that was most of the system calls for folders.
func (r root) makeDir(at string) error {
	err := unix.Mkdir(at, 0o755)
	if errors.Is(err, unix.ENOENT) && at != r.dir {
		if err := r.makeDir(filepath.Dir(at)); err != nil {
			return err
		}
		err = unix.Mkdir(at, 0o755)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", at, err)
	}
	return nil
}

// makeFile makes an empty file unless there is one, and the folders above it.
func (r root) makeFile(at string) error {
	const flags = unix.O_CREAT | unix.O_RDONLY | unix.O_CLOEXEC
	fd, err := unix.Open(at, flags, 0o644)
	if errors.Is(err, unix.ENOENT) {
		if err := r.makeDir(filepath.Dir(at)); err != nil {
			return err
		}
		fd, err = unix.Open(at, flags, 0o644)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", at, err)
	}
	return unix.Close(fd)
}

// pivot makes the new root the root of the process and unmounts the old one.
func (r root) pivot() error {
	if err := unix.Chdir(r.dir); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	err := unix.PivotRoot(".", ".")
	if errors.Is(err, unix.EINVAL) {
		// In a chroot "/" is not a mount point, or the mount that holds it was shared when the
		// chroot was made.
		if err = r.leaveChroot(); err == nil {
			err = unix.PivotRoot(".", ".")
		}
	}
	if err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("", "/", "", flags, ""); err != nil {
		return fmt.Errorf("read-only root: %w", err)
	}
	return nil
}

// leaveChroot makes the mount namespace's root the root of the process, and keeps the working
// folder.
func (r root) leaveChroot() error {
	inner, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(inner)
	outer, err := openNamespaceRoot()
	if err != nil {
		return err
	}
	defer unix.Close(outer)
	if err := unix.Fchdir(outer); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("leave the chroot: %w", err)
	}
	return unix.Fchdir(inner)
}

func mountTmpfs(dir string, size int64, mode uint32) error {
	data := "size=" + strconv.FormatInt(size, 10) + ",nr_inodes=65536,mode=" + strconv.FormatUint(uint64(mode), 8)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}
