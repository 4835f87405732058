package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/fabric/call"
)

// TestMain lets the test binary be the other process of a benchmark.
func TestMain(m *testing.M) {
	role := os.Getenv("REMOTE_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := serveRole(role); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
}

// serveRole serves on the listener that is descriptor 3, until its input ends.
func serveRole(role string) error {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	config, err := inheritedTLS()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := func() { cancel() }
	serve := func() error { return Serve(ctx, l, config, Options{Handler: &unaryEcho{}}) }
	switch role {
	case "streams":
		serve = func() error { return Serve(ctx, l, config, Options{Handler: &echo{}}) }
	case "grpc":
		config.NextProtos = []string{"h2"}
		s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
		testgrpc.RegisterBenchmarkServiceServer(s, grpcEcho{})
		stop, serve = s.Stop, func() error { return s.Serve(l) }
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return serve()
}

type grpcEcho struct {
	testgrpc.UnimplementedBenchmarkServiceServer
}

func (grpcEcho) UnaryCall(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: r.Payload}, nil
}

func (grpcEcho) StreamingFromClient(s testgrpc.BenchmarkService_StreamingFromClientServer) error {
	for {
		if _, err := s.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return s.SendAndClose(&testgrpc.SimpleResponse{})
			}
			return err
		}
	}
}

// inheritedTLS reads the certificate from the environment.
func inheritedTLS() (*tls.Config, error) {
	pair, err := tls.X509KeyPair([]byte(os.Getenv("REMOTE_TEST_CERT")), []byte(os.Getenv("REMOTE_TEST_KEY")))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(os.Getenv("REMOTE_TEST_CERT")))
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, ServerName: "node",
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, nil
}

// process is the other process.
type process struct {
	cmd  *exec.Cmd
	addr string
	tls  *tls.Config
}

func spawn(b testing.TB, role string) *process {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	config, _ := certificates(b)
	key, err := x509.MarshalPKCS8PrivateKey(config.Certificates[0].PrivateKey)
	if err != nil {
		b.Fatal(err)
	}
	block := func(kind string, raw []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "REMOTE_TEST_ROLE="+role,
		"REMOTE_TEST_CERT="+block("CERTIFICATE", config.Certificates[0].Certificate[0]),
		"REMOTE_TEST_KEY="+block("PRIVATE KEY", key))
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &process{cmd, l.Addr().String(), config}
}

// cpu is the time that both processes have used.
func (p *process) cpu() time.Duration {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	total := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, f := range fields[11:13] {
		ticks, _ := strconv.Atoi(f)
		total += time.Duration(ticks) * 10 * time.Millisecond
	}
	return total
}

// caller functions of the peers that are compared.
func benchPeers(size int) map[string]func(b *testing.B) (p *process, one func() error) {
	data := make([]byte, size)
	unary := func(role string) func(b *testing.B) (*process, func() error) {
		return func(b *testing.B) (*process, func() error) {
			p := spawn(b, role)
			c, err := Dial(b.Context(), p.addr, p.tls, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { c.Close() })
			h := &call.Head{Method: "/grpc.testing.BenchmarkService/UnaryCall"}
			return p, func() error {
				m, _, err := c.Unary(context.Background(), h, &call.Message{Data: data})
				m.Free()
				return err
			}
		}
	}
	return map[string]func(b *testing.B) (*process, func() error){
		"fabric":           unary("unary"),
		"fabric_by_stream": unary("streams"),
		"grpc": func(b *testing.B) (*process, func() error) {
			p := spawn(b, "grpc")
			config := p.tls.Clone()
			config.NextProtos = []string{"h2"}
			cc, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { cc.Close() })
			stub := testgrpc.NewBenchmarkServiceClient(cc)
			request := &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: data}}
			return p, func() error {
				_, err := stub.UnaryCall(context.Background(), request)
				return err
			}
		},
	}
}

// BenchmarkUnary compares calls of 64 bytes and 256 KiB between two processes over TCP with
// TLS 1.3: time and CPU of both per call.
func BenchmarkUnary(b *testing.B) {
	for _, shape := range []struct{ size, flight int }{{64, 1}, {64, 64}, {256 << 10, 1}} {
		for name, peer := range benchPeers(shape.size) {
			b.Run(fmt.Sprintf("%s/size=%d/flight=%d", name, shape.size, shape.flight), func(b *testing.B) {
				p, one := peer(b)
				for range 200 {
					if err := one(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				before := p.cpu()
				b.ResetTimer()
				inFlight(b, shape.flight, one)
				b.StopTimer()
				b.ReportMetric(float64(p.cpu()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

func inFlight(b *testing.B, flight int, one func() error) {
	var wg sync.WaitGroup
	todo := make(chan struct{}, b.N)
	for range b.N {
		todo <- struct{}{}
	}
	close(todo)
	for range flight {
		wg.Go(func() {
			for range todo {
				if err := one(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
