// Package sandbox isolates a process that runs foreign code: namespaces, a root of its
// own, system calls by an allow-list, Landlock.
//
// # Two steps
//
// A parent starts the process in namespaces of its own ([Namespaces.Apply]); the process
// then builds its root, gives up its privileges and executes its program again ([Enter],
// [Exec]). Namespaces can only be entered at clone by a program with several threads, and
// everything that Enter sets belongs to one thread until the second execution makes it
// that of the process.
//
// # Inside
//
// The root is a tmpfs that contains the system's libraries, read-only, named files of
// /etc, named device files, the process's own /proc, a /tmp and a /dev/shm of bounded size
// that vanish with the process, and the folders that [Config.Writable] lists. There is no
// network interface, no socket of any family can be made, no process outside is visible,
// and a system call that the allow-list lacks fails with ENOSYS or EPERM.
//
// A mechanism that the kernel or the caller's privileges don't allow is left out and
// reported; the caller decides which ones it requires.
package sandbox
