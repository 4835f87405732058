// Package unixsock opens unix sockets at paths of any length and passes open files over them.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path that fits into a sockaddr_un with its terminating NUL.
const maxPath = 107

// Listen creates a stream socket at path to which only its owner may connect. It
// replaces a socket on which no process listens any more.
func Listen(path string) (*net.UnixListener, error) { return listen("unix", path) }

// ListenPacket is Listen for a packet socket (SOCK_SEQPACKET).
func ListenPacket(path string) (*net.UnixListener, error) { return listen("unixpacket", path) }

func listen(network, path string) (*net.UnixListener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: short, Net: network})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, errors.Unwrap(err))
	}
	// The listener would unlink its address, which may be the temporary short path.
	l.SetUnlinkOnClose(short == path)
	if err := restrict(path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// restrict leaves a socket to its owner. It changes nothing where the umask has done so: a confined
// process may not change modes.
func restrict(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return os.Chmod(path, 0o600)
}

// removeStale unlinks a socket at path unless a process listens on it.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("listen on %s: the path is taken by a file that is not a socket: remove it", path)
	}
	conn, err := Dial(context.Background(), path)
	switch {
	case err == nil:
		return errors.Join(errInUse(path), conn.Close())
	case errors.Is(err, unix.EPROTOTYPE), errors.Is(err, unix.EAGAIN):
		return errInUse(path) // a socket of the other type, or one whose backlog is full
	}
	return os.Remove(path)
}

func errInUse(path string) error {
	return fmt.Errorf("listen on %s: another process listens there", path)
}

// Dial connects to the stream socket at path.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) { return dial(ctx, "unix", path) }

// DialPacket connects to the packet socket at path.
func DialPacket(ctx context.Context, path string) (*net.UnixConn, error) {
	return dial(ctx, "unixpacket", path)
}

func dial(ctx context.Context, network, path string) (*net.UnixConn, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, short)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn.(*net.UnixConn), nil //nolint:errcheck,forcetypeassert // a dial of these networks returns nothing else
}

// shorten returns an alias of path that fits into a socket address and is valid until
// done is called: it names the folder by an open descriptor, below /proc/self/fd.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	short = fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path))
	return short, func() { _ = unix.Close(fd) }, nil
}

// Send writes data and passes file, which may be nil, with its first byte.
func Send(conn *net.UnixConn, data []byte, file *os.File) error {
	if len(data) == 0 {
		return errors.New("send a file: at least one byte of data must accompany it")
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	n, _, err := conn.WriteMsgUnix(data, rights, nil)
	if err != nil {
		return err
	}
	if n < len(data) {
		_, err = conn.Write(data[n:])
	}
	return err
}

// Receive fills data and returns the file that was passed with it, or nil.
func Receive(conn *net.UnixConn, data []byte) (*os.File, error) {
	// The buffer holds more than one descriptor, so that excess descriptors from the peer
	// are received and closed instead of left open.
	rights := make([]byte, unix.CmsgSpace(4*4))
	n, got, _, _, err := conn.ReadMsgUnix(data, rights)
	if err != nil {
		return nil, err
	}
	file, err := fileOf(rights[:got])
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil && n < len(data) {
		_, err = io.ReadFull(conn, data[n:])
	}
	if err != nil && file != nil {
		_ = file.Close()
		file = nil
	}
	return file, err
}

func fileOf(rights []byte) (*os.File, error) {
	if len(rights) == 0 {
		return nil, nil //nolint:nilnil // a message without a file is no error
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			fds = append(fds, more...)
		}
	}
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		if i > 0 {
			_ = unix.Close(fd)
		}
	}
	if len(fds) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	return os.NewFile(uintptr(fds[0]), "received"), nil
}
