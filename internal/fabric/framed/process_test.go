package framed

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/outboard-run/outboard/internal/shm"
)

// TestMain lets the test binary be the other processes of the benchmarks.
func TestMain(m *testing.M) {
	roles := map[string]func() error{"near": nearProcess, "far": farProcess, "worker": workerProcess, "echo": echoProcess}
	if role := roles[os.Getenv("FABRIC_TEST_ROLE")]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// benchTLS is good enough to measure with: no process knows the other's authority.
func benchTLS() *tls.Config {
	_, server := certificates(&testing.B{})
	server.ClientAuth = tls.NoClientCert
	server.InsecureSkipVerify = true
	return server
}

// nearProcess relays the ring in descriptor 3 to the address in the environment,
// as `outboard run` does.
func nearProcess() error {
	ring, err := shm.Open(os.NewFile(3, "ring"), shm.Worker)
	if err != nil {
		return err
	}
	c, err := Dial(context.Background(), os.Getenv("FABRIC_TEST_ADDR"), benchTLS(), Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Open(context.Background(), "session", nil)
	if err != nil {
		return err
	}
	return Relay(s, ring)
}

// farProcess relays the stream that comes on the listener in descriptor 3 to the
// ring in descriptor 4, as a node does.
func farProcess() error {
	c, err := acceptOn3()
	if err != nil {
		return err
	}
	ring, err := shm.Open(os.NewFile(4, "ring"), shm.Client)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Accept(context.Background())
	if err != nil {
		return err
	}
	return Relay(s, ring)
}

func acceptOn3() (*Conn, error) {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return nil, err
	}
	nc, err := l.Accept()
	if err != nil {
		return nil, err
	}
	return Server(nc, Options{TLS: benchTLS()}), nil
}

// workerProcess answers the first 64 bytes of each piece that comes.
func workerProcess() error {
	ring, err := shm.Open(os.NewFile(3, "ring"), shm.Worker)
	if err != nil {
		return err
	}
	for {
		b, err := ring.Next(1)
		if err != nil {
			return nil //nolint:nilerr // the other end has gone, as it shall
		}
		if len(b) == 64 {
			room, err := ring.Reserve(64)
			if err != nil {
				return nil //nolint:nilerr // the other end has gone, as it shall
			}
			copy(room, b)
			ring.Commit(64)
		}
		ring.Release(len(b))
	}
}

func echoProcess() error {
	c, err := acceptOn3()
	if err != nil {
		return err
	}
	defer c.Close()
	serveEcho(context.Background(), c)
	return nil
}

func spawn(b *testing.B, role, addr string, files ...*os.File) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FABRIC_TEST_ROLE="+role, "FABRIC_TEST_ADDR="+addr)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Wait() })
}

func listen(b *testing.B) (addr string, f *os.File) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	f, err = l.(*net.TCPListener).File()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return l.Addr().String(), f
}

// acrossMachines joins a program's ring to a worker's as across machines: four
// processes, two relays, TLS between them. It returns the program's end.
func acrossMachines(b *testing.B) *shm.Ring {
	program, err := shm.Create(shm.DefaultArea)
	if err != nil {
		b.Fatal(err)
	}
	far, err := shm.NewFile(shm.DefaultArea)
	if err != nil {
		b.Fatal(err)
	}
	defer far.Close()
	b.Cleanup(program.Unmap)
	addr, l := listen(b)
	spawn(b, "worker", "", far)
	spawn(b, "far", "", l, far)
	spawn(b, "near", addr, program.File())
	b.Cleanup(func() { program.Close(shm.Done) })
	return program
}

func BenchmarkAcrossMachinesPingPong(b *testing.B) {
	program := acrossMachines(b)
	for b.Loop() {
		if _, err := program.Reserve(64); err != nil {
			b.Fatal(err)
		}
		program.Commit(64)
		if _, err := program.Next(64); err != nil {
			b.Fatal(err)
		}
		program.Release(64)
	}
}

func BenchmarkAcrossMachinesBulk(b *testing.B) {
	program := acrossMachines(b)
	data := make([]byte, 64<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		for rest := data; len(rest) > 0; {
			room, err := program.Reserve(1)
			if err != nil {
				b.Fatal(err)
			}
			n := copy(room[:min(len(room), 256<<10)], rest)
			program.Commit(n)
			rest = rest[n:]
		}
	}
}

// processPair connects to an echo server in a process of its own.
func processPair(b *testing.B) *Conn {
	addr, l := listen(b)
	spawn(b, "echo", "", l)
	c, err := Dial(b.Context(), addr, benchTLS(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func BenchmarkProcessesPingPong(b *testing.B) {
	s, err := processPair(b).Open(b.Context(), "echo", nil)
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 64)
	for b.Loop() {
		if _, err := s.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProcessesBulk(b *testing.B) {
	s, err := processPair(b).Open(b.Context(), "sink", nil)
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 4<<20)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if _, err := s.Write(p); err != nil {
			b.Fatal(err)
		}
	}
}
