package unixsock_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/unixsock"
)

func pair(t *testing.T, path string) (client, server *net.UnixConn) {
	t.Helper()
	l, err := unixsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	client, err = unixsock.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server, err = l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}

func TestSendReceive(t *testing.T) {
	tests := map[string]string{
		"short path": filepath.Join(t.TempDir(), "s"),
		"long path":  filepath.Join(t.TempDir(), strings.Repeat("long", 40)),
	}
	for name, dir := range tests {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			client, server := pair(t, filepath.Join(dir, "sock"))
			sent, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer sent.Close()
			if _, err := sent.WriteString("content"); err != nil {
				t.Fatal(err)
			}
			if err := unixsock.Send(server, []byte("header"), sent); err != nil {
				t.Fatal(err)
			}
			data := make([]byte, 6)
			file, err := unixsock.Receive(client, data)
			if err != nil || file == nil {
				t.Fatalf("got file %v, error %v", file, err)
			}
			defer file.Close()
			content := make([]byte, 7)
			if _, err := file.ReadAt(content, 0); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("header content", string(data)+" "+string(content)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReceiveWithoutFile(t *testing.T) {
	client, server := pair(t, filepath.Join(t.TempDir(), "sock"))
	if err := unixsock.Send(server, []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	file, err := unixsock.Receive(client, make([]byte, 1))
	if file != nil || err != nil {
		t.Errorf("got %v, %v, want neither file nor error", file, err)
	}
	_ = server.Close()
	if _, err := unixsock.Receive(client, make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestListenReplacesOnlyDeadSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	first, err := unixsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := unixsock.Listen(path); err == nil {
		_ = second.Close()
		t.Error("a living socket was replaced")
	}
	first.SetUnlinkOnClose(false)
	_ = first.Close()
	second, err := unixsock.Listen(path)
	if err != nil {
		t.Fatalf("a dead socket is in the way: %v", err)
	}
	_ = second.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := unixsock.Listen(path); err == nil {
		_ = l.Close()
		t.Error("a plain file was replaced")
	}
}

// TestPacket: a packet socket keeps the boundaries of messages, and its path can't be taken.
func TestPacket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "packets")
	l, err := unixsock.ListenPacket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, listen := range map[string]func(string) (*net.UnixListener, error){"Listen": unixsock.Listen, "ListenPacket": unixsock.ListenPacket} {
		if second, err := listen(path); err == nil {
			t.Errorf("%s took a path on which a process listens", name)
			_ = second.Close()
		}
	}
	client, err := unixsock.DialPacket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, packet := range []string{"one", "and another"} {
		if _, err := client.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"one", "and another"} {
		data := make([]byte, 64)
		if n, err := server.Read(data); string(data[:n]) != want || err != nil {
			t.Errorf("read %q, %v; want %q", data[:n], err, want)
		}
	}
	if _, err := unixsock.DialPacket(t.Context(), path+"-missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("DialPacket of a missing path: %v", err)
	}
}
