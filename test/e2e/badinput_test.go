package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/node"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A hostile pool test has a session beside all that goes wrong, which must not notice.
type hostile struct {
	*rig.Rig
	log       *os.File
	bystander *runningProgram
}

func besiege(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{log: logFile(t)}
	// Without namespaces, so that this process reaches the nodes' ports itself.
	h.Rig = own(t, rig.Options{Nodes: pair(), Loopback: true, Log: h.log})
	h.bystander = startBlocked(t, through(h.Rig, "dinghy", "--memory", "64MiB"), "read")
	return h
}

// undisturbed checks what was there before the bad input.
func (h *hostile) undisturbed(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(h.bystander.cmd.Process.Pid, 0); err != nil {
		t.Errorf("the other session's program is gone: %v\n%s", err, h.bystander.stderrText())
	}
	eventually(t, "only the bystander's session is there", func() bool {
		return len(list(t, h.Node("harbour"), "sessions")) == 1
	})
	if h.bystander.stderrText() != "" {
		t.Errorf("the other session noticed: %s", h.bystander.stderrText())
	}
}

var refusals = regexp.MustCompile(`(?m)^.* level=WARN .*$`)

// warned are the warnings that the nodes logged.
func (h *hostile) warned(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(h.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return refusals.FindAllString(string(raw), -1)
}

// loggedOnce does something that a node refuses, and wants one warning of it.
func (h *hostile) loggedOnce(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	before := len(h.warned(t))
	do(t)
	eventually(t, "the refusal is in the log", func() bool { return len(h.warned(t)) > before })
	h.undisturbed(t)
	if lines := h.warned(t)[before:]; len(lines) != 1 {
		t.Errorf("logged %d times:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

const (
	exitInvalid = 10
	exitDenied  = 14
)

func TestBadTokens(t *testing.T) {
	beside(t)
	h := besiege(t)
	harbour := h.Node("harbour")
	token := func(t *testing.T, flags ...string) string {
		text, err := harbour.Output(t.Context(), append([]string{"token"}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(text)
	}
	wrong := func(text string) string {
		at := len(text) - 9 // some bits of the last letter mean nothing
		other := "a"
		if text[at] == 'a' {
			other = "b"
		}
		return text[:at] + other + text[at+1:]
	}
	used := func(t *testing.T) string {
		text := token(t)
		parsed, err := authority.ParseToken(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := authority.Join(t.Context(), harbour.Addr, parsed, "first"); err != nil {
			t.Fatalf("the token's first use: %v", err)
		}
		return text
	}
	expired := func(t *testing.T) string {
		var made client.Token
		if err := json.Unmarshal([]byte(token(t, "--ttl", "1s", "-o", "json")), &made); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Until(made.Expires.Add(100 * time.Millisecond)))
		return made.Token
	}
	for name, make := range map[string]func(t *testing.T) string{
		"wrong":   func(t *testing.T) string { return wrong(token(t)) },
		"used":    used,
		"expired": expired,
	} {
		t.Run(name, func(t *testing.T) {
			text := make(t)
			h.loggedOnce(t, func(t *testing.T) { h.join(t, text, exitDenied) })
		})
	}
	t.Run("none", func(t *testing.T) { h.join(t, "friend", exitInvalid) })
}

// join starts a node that is not admitted.
func (h *hostile) join(t *testing.T, token string, status int) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := h.Node("dinghy").Command(ctx, "up", "--data", dir, "--name", "stray", "--listen", "127.0.0.1:0", "--join", h.Node("harbour").Addr, "--token", token)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("exit status %d, want %d", got, status)
	}
	if said := strings.TrimSpace(string(out)); !strings.Contains(said, "token") {
		t.Errorf("it said %q, want why", said)
	}
	if authority.Exists(filepath.Join(dir, "pool")) {
		t.Error("the stray node has an identity now")
	}
}

func (h *hostile) dial(t *testing.T) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", h.Node("harbour").Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hangsUp wants the node to end the connection after the given bytes, within the
// time that it gives a peer to say what it wants.
func hangsUp(t *testing.T, conn net.Conn, say []byte) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(say) // it may hang up before it has read all
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
		t.Error("the node still listens")
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{7})
	_, _ = random.Read(b)
	return b
}

func TestBadPeers(t *testing.T) {
	beside(t)
	h := besiege(t)
	hello := clientHello(t)
	for name, say := range map[string][]byte{
		"noise":                     noise(4096),
		"plain HTTP":                []byte("GET / HTTP/1.1\r\nHost: harbour\r\n\r\n"),
		"a truncated hello":         hello[:len(hello)/2],
		"a hello and noise":         append(bytes.Clone(hello), noise(512)...),
		"a record of absurd length": {22, 3, 1, 0xff, 0xff, 1, 0xff, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			h.loggedOnce(t, func(t *testing.T) { hangsUp(t, h.dial(t), say) })
		})
	}
	t.Run("a foreign certificate", func(t *testing.T) {
		for _, protocol := range []string{borrow.Protocol, "outboard-state/1"} {
			h.loggedOnce(t, func(t *testing.T) {
				conn := tls.Client(h.dial(t), foreign(t, protocol))
				hangsUp(t, conn, noise(16))
			})
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		h.loggedOnce(t, func(t *testing.T) {
			config := foreign(t, borrow.Protocol)
			config.Certificates = nil
			hangsUp(t, tls.Client(h.dial(t), config), noise(16))
		})
	})
}

// foreign is the certificate of a node of another pool.
func foreign(t *testing.T, protocol string) *tls.Config {
	t.Helper()
	other, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id, err := other.NewIdentity("harbour", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, Certificates: []tls.Certificate{id.TLSCertificate()},
		InsecureSkipVerify: true, //nolint:gosec // it is the server's check that is tested
	}
}

// clientHello is the first message of a good handshake.
func clientHello(t *testing.T) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{borrow.Protocol}, ServerName: "x"}
		_ = tls.Client(ours, config).HandshakeContext(context.WithoutCancel(t.Context())) // the other side does not answer
		_ = ours.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := theirs.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// lease leases from a node for as long as the test lasts.
func lease(t *testing.T, n *rig.Node) *client.Hold {
	t.Helper()
	c := client.Client{Data: n.Data()}
	hold, err := c.Acquire(t.Context(), client.LeaseRequest{Count: 1, Memory: 1 << 20, Weight: 1, NoWait: true, Program: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hold.Close() })
	return hold
}

// vouched are the credentials that a node gives its programs.
func vouched(t *testing.T, hold *client.Hold, protocol string) *tls.Config {
	t.Helper()
	c, l := hold.Credentials(), hold.Leases()[0]
	cert, err := tls.X509KeyPair(c.Certificate, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(c.Authority)
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	config := authority.SessionClientTLS([]*x509.Certificate{root}, cert, l.About.Node, l.Fingerprint)
	config.NextProtos = []string{protocol}
	return config
}

// A program's own credentials open nothing but its own sessions.
func TestBadFrames(t *testing.T) {
	beside(t)
	h := besiege(t)
	hold := lease(t, h.Node("dinghy"))
	const begin = "OBFABR\x00\x01"
	for name, say := range map[string]string{
		"noise":                 string(noise(4096)),
		"another version":       "OBFABR\x00\x09",
		"half of the beginning": begin[:4],
		"a truncated frame":     begin + "\x10\x00\x00\x01\x01\x00\x00\x00\x07\x00sess",
		"an absurd length":      begin + "\xff\xff\xff\x02\x01\x00\x00\x00",
		"an unknown type":       begin + "\x00\x00\x00\x63\x01\x00\x00\x00",
		"data of no stream":     begin + "\x01\x00\x00\x02\x07\x00\x00\x00x",
		"too much credit":       begin + "\x09\x00\x00\x01\x01\x00\x00\x00\x07\x00session" + "\x04\x00\x00\x03\x01\x00\x00\x00\xff\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			before := len(h.warned(t))
			hangsUp(t, tls.Client(h.dial(t), vouched(t, hold, borrow.Protocol)), []byte(say))
			h.undisturbed(t)
			if lines := h.warned(t)[before:]; len(lines) > 2 {
				t.Errorf("logged %d times:\n%s", len(lines), strings.Join(lines, "\n"))
			}
		})
	}
	t.Run("a session's certificate for the pool's state", func(t *testing.T) {
		h.loggedOnce(t, func(t *testing.T) {
			hangsUp(t, tls.Client(h.dial(t), vouched(t, hold, "outboard-state/1")), noise(64))
		})
	})
}

func TestBadClaims(t *testing.T) {
	beside(t)
	h := besiege(t)
	mine, others := lease(t, h.Node("dinghy")), lease(t, h.Node("harbour"))
	good := mine.Leases()[0].Claim
	bent := bytes.Clone(good)
	bent[len(bent)/2] ^= 1
	over := lease(t, h.Node("dinghy"))
	expired := over.Leases()[0].Claim
	if err := over.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease is over", func() bool { return len(list(t, h.Node("harbour"), "leases")) == 3 })
	claims := map[string][]byte{
		"another node's":          others.Leases()[0].Claim,
		"bent":                    bent,
		"cut":                     good[:len(good)/2],
		"empty":                   nil,
		"noise":                   noise(4000),
		"of a lease that is over": expired,
	}
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			h.loggedOnce(t, func(t *testing.T) {
				remote := borrow.NewRemote(borrow.RemoteOptions{
					Addr: h.Node("harbour").Addr, TLS: func() (*tls.Config, error) { return vouched(t, mine, borrow.Protocol), nil },
				})
				defer remote.Close()
				link, err := remote.Dial(t.Context(), claim)
				if err == nil {
					<-link.Done()
					err = link.Err()
					_ = link.Close()
				}
				refusedFor(t, err)
			})
		})
		if name == "another node's" {
			continue // this is the other node's own socket
		}
		t.Run(name+", locally", func(t *testing.T) {
			h.loggedOnce(t, func(t *testing.T) {
				_, err := borrow.Local(t.Context(), filepath.Join(h.Node("harbour").Data(), node.SessionSocket), claim)
				refusedFor(t, err)
			})
		})
	}
}

// refusedFor wants an error that says that the claim is no good.
func refusedFor(t *testing.T, err error) {
	t.Helper()
	switch outboard.KindOf(err) {
	case outboard.Denied, outboard.LeaseLost, outboard.Protocol, outboard.Invalid:
	default:
		t.Errorf("got %v of kind %v, want a refusal", err, outboard.KindOf(err))
	}
}

// endOfSession sends a packet to a node's session socket, and returns the node's answer.
func endOfSession(t *testing.T, path string, packet []byte) error {
	t.Helper()
	socket, err := unixsock.DialPacket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if len(packet) > 0 {
		if _, err := socket.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	conn := ipc.New(socket, borrow.LocalOptions)
	defer conn.Close()
	_ = conn.CloseWrite()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := conn.Receive(ctx)
	if err != nil || m.Type != borrow.TypeEnded {
		t.Fatalf("got %v, %v, want the end of the session", m, err)
	}
	var why ipc.Reason
	if err := m.Decode(&why); err != nil {
		t.Error(err)
	}
	return why.Err()
}

func TestBadRequests(t *testing.T) {
	beside(t)
	h := besiege(t)
	data := h.Node("harbour").Data()
	say := func(t *testing.T, path string, text []byte) string {
		conn, err := unixsock.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = conn.Write(text) // it may hang up before it has read all
		_ = conn.CloseWrite()
		answer, err := io.ReadAll(conn)
		if os.IsTimeout(err) {
			t.Error("the node still listens")
		}
		return string(answer)
	}
	sessions := map[string][]byte{
		"noise":        noise(100),
		"no type":      []byte(`{"claim":""}`),
		"another type": []byte(`{"type":"open","claim":7}`),
		"no request":   []byte(`{"type":"open","body_file":true}`),
		"a long one":   append([]byte(`{"type":"open","claim":"`), bytes.Repeat([]byte("x"), 100<<10)...),
		"nothing":      nil,
	}
	for name, packet := range sessions {
		t.Run("session "+name, func(t *testing.T) {
			h.loggedOnce(t, func(t *testing.T) {
				if err := endOfSession(t, filepath.Join(data, node.SessionSocket), packet); outboard.KindOf(err) != outboard.Protocol {
					t.Errorf("the session ended with %v, want a protocol error", err)
				}
			})
		})
	}
	requests := map[string]struct{ text, want string }{
		"noise":         {string(noise(100)) + "\r\n\r\n", "400 Bad Request"},
		"unknown door":  {"GET /v1/kernels HTTP/1.0\r\n\r\n", "404"},
		"not JSON":      {"POST /v1/leases HTTP/1.0\r\nContent-Length: 4\r\n\r\nlend", "400"},
		"absurd size":   {"POST /v1/leases HTTP/1.0\r\nContent-Length: 33\r\n\r\n" + `{"memory":"99999999999999999TiB"}`, "400"},
		"negative":      {"POST /v1/leases HTTP/1.0\r\nContent-Length: 12\r\n\r\n" + `{"count":-1}`, `{"failed":{"kind":1,`},
		"too many":      {"POST /v1/leases HTTP/1.0\r\nContent-Length: 20\r\n\r\n" + `{"count":1000000000}`, `{"failed":{"kind":3,`},
		"absurd header": {"GET /v1/nodes HTTP/1.0\r\nX: " + strings.Repeat("x", 4<<20) + "\r\n\r\n", ""},
		"absurd body":   {"POST /v1/leases HTTP/1.0\r\nContent-Length: 4000000\r\n\r\n{\"program\":\"" + strings.Repeat("x", 4000000-12), ""},
	}
	for name, test := range requests {
		t.Run("request "+name, func(t *testing.T) {
			answer := say(t, filepath.Join(data, client.SocketName), []byte(test.text))
			if !strings.Contains(answer, test.want) {
				t.Errorf("answer %q, want %q", answer, test.want)
			}
			h.undisturbed(t)
		})
	}
}
