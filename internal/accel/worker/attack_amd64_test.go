package worker

import (
	"encoding/binary"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/control"
)

// hostileKernel makes system calls, as native code can: each result is one number.
const hostileKernel = `
long call(long number, long a, long b, long c) {
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}
kernel void k(global int *out) {
	if (get_global_id(0) != 0) return;
	char tty[] = "/dev/tty", shadow[] = "/etc/shadow", mem[] = "/dev/mem", root[] = "/root", host[] = "/etc/hostname";
	out[0] = call(2, (long)tty, 2, 0);
	out[1] = call(2, (long)shadow, 0, 0);
	out[2] = call(2, (long)mem, 2, 0);
	out[3] = call(2, (long)root, 0, 0);
	out[4] = call(2, (long)host, 0, 0);
	out[5] = call(41, 2, 2, 0);   // socket: UDP
	out[6] = call(41, 2, 1, 262); // socket: MPTCP
	out[7] = call(41, 16, 3, 0);  // socket: netlink
	out[8] = call(41, 1, 1, 0);   // socket: unix
	out[9] = call(157, 1, 0, 0);  // prctl: PR_SET_PDEATHSIG
	out[10] = call(112, 0, 0, 0); // setsid
	out[11] = call(101, 0, 0, 0); // ptrace
	out[12] = call(56, 0x10000000, 0, 0); // clone: a user namespace
	out[13] = call(62, -1, 0, 0); // kill: every process, to find any
	out[14] = call(233, 4, 1, 0); // epoll_ctl: a watch
	if (out[14] == -1) out[14] = call(291, 0, 0, 0); // epoll_create1
	out[15] = call(39, 0, 0, 0);  // getpid, which is allowed
}`

// A kernel reaches none of the machine's files, devices, networks and processes.
func TestHostileKernel(t *testing.T) {
	p := start(t, control.Config{Session: "s"})
	p.ready()
	got, err := p.kernel(hostileKernel)
	if err != nil {
		t.Fatal(err)
	}
	for i, what := range []string{
		"opened /dev/tty", "opened /etc/shadow", "opened /dev/mem", "opened /root", "opened /etc/hostname", "made a UDP socket",
		"made an MPTCP socket", "made a netlink socket", "made a unix socket", "cleared its parent-death signal", "left its session",
		"traced", "made a namespace", "signalled other processes", "watched a file",
	} {
		if result := int32(binary.LittleEndian.Uint32(got[4*i:])); result >= 0 {
			t.Errorf("the kernel %s: %d", what, result)
		} else if syscall.Errno(-result) == unix.EFAULT {
			t.Errorf("the attack by which a kernel %s was not carried out", what)
		}
	}
	if binary.LittleEndian.Uint32(got[4*15:]) == 0 {
		t.Error("the kernel's system calls did not work at all")
	}
}

// The worker has no controlling terminal, even if its parent has one.
func TestNoTerminal(t *testing.T) {
	p := start(t, control.Config{Session: "s"})
	p.ready()
	if sid, err := unix.Getsid(p.cmd.Process.Pid); err != nil || sid != p.cmd.Process.Pid {
		t.Errorf("the worker is in session %d, %v, want its own", sid, err)
	}
}
