// Package sandbox isolates a process that runs foreign code: namespaces, a private root, system
// calls by an allow-list, Landlock.
//
// # Two steps
//
// A parent starts the process in new namespaces ([Namespaces.Apply]); the process then builds its
// root, drops its privileges and executes its program again ([Enter], [Inside.Exec]). A program
// with several threads can enter namespaces only at clone, and the settings of Enter apply to one
// thread until the second execution makes it the only thread of the process.
//
// # Inside
//
// The root is a tmpfs that contains the system's libraries, read-only, named files of /etc, named
// device files, the process's own /proc, a /tmp and a /dev/shm of bounded size that vanish with the
// process, and the folders that [Config.Writable] lists. There is no network interface, no socket
// of any family can be created, no process outside is visible, and a system call outside of the
// allow-list fails with ENOSYS or EPERM.
//
// A mechanism that the kernel or the caller's privileges don't allow is left out and reported; the
// caller decides which mechanisms it requires.
package sandbox
