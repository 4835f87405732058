package authority_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// Whatever claims to be a claim, only what the node has signed is taken for one.
func FuzzClaim(f *testing.F) {
	_, nodes := testPool(f, "a")
	lease := outboard.Lease{Device: "b/opencl/0", Fence: 7, Grant: outboard.Grant{Lease: "l", Holder: "a", Boot: "1"}}
	good, err := nodes[0].SignClaim(lease, now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"body":"e30=","sig":"","cert":""}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, peer, err := nodes[0].VerifyClaim(text, now)
		if err != nil {
			if outboard.KindOf(err) != outboard.Denied || got != (outboard.Lease{}) {
				t.Errorf("got %+v with %v", got, err)
			}
			return
		}
		if got != lease || peer.Node != "a" {
			t.Errorf("forged %+v of %+v", got, peer)
		}
	})
}

func FuzzToken(f *testing.F) {
	ca, _ := testPool(f)
	f.Add(ca.NewToken().String())
	f.Add("obt1-")
	f.Add(" obt1-AAAA\n")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := authority.ParseToken(text)
		if err != nil {
			if outboard.KindOf(err) != outboard.Invalid {
				t.Errorf("kind of %v", err)
			}
			return
		}
		again, err := authority.ParseToken(token.String())
		if err != nil || again != token {
			t.Errorf("%q prints as %q, which reads as %v, %v", text, token, again, err)
		}
	})
}

// nobody lets nobody in.
type nobody struct{ t *testing.T }

func (n nobody) Admit(_ context.Context, name outboard.NodeID, _ string, _ *x509.CertificateRequest) (*x509.Certificate, []string, error) {
	if err := authority.CheckName(name); err != nil {
		n.t.Errorf("asked to admit %q", name)
	}
	return nil, nil, outboard.Errorf(outboard.Denied, "let a node in", "nobody is let in")
}

// Whatever a joining node sends, the server answers with a refusal or ends, and
// does not wait for what does not come.
func FuzzJoin(f *testing.F) {
	message := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	f.Add(message(`{"name":"a","secret":"AAAAAAAAAAAAAAAAAAAAAA==","csr":"AA=="}`))
	f.Add(message(`{}`))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 9, '{'})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		var answer bytes.Buffer
		done := make(chan struct{})
		go func() {
			defer close(done)
			// The server may end before it has read all.
			_, _ = ours.Write(sent)
			if len(sent) < 4 || uint64(len(sent)) < 4+uint64(binary.BigEndian.Uint32(sent)) {
				ours.Close() // It would wait for the rest.
			}
			_, _ = io.Copy(&answer, ours)
		}()
		if _, err := authority.ServeJoin(t.Context(), theirs, nobody{t}); err == nil {
			t.Error("somebody was let in")
		}
		ours.Close()
		<-done
		if bytes.Contains(answer.Bytes(), []byte(`"cert"`)) {
			t.Errorf("answered %q", answer.Bytes())
		}
	})
}

// undecided does not decide before the context ends.
type undecided struct{}

func (undecided) Admit(ctx context.Context, _ outboard.NodeID, _ string, _ *x509.CertificateRequest) (*x509.Certificate, []string, error) {
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// A joining node learns why it waited in vain: the nodes that keep the pool's state are down.
func TestServeJoinWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{"name": "dinghy", "secret": make([]byte, 16), "csr": csr})
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		defer ours.Close()
		answer := make(chan []byte, 1)
		go func() {
			_, _ = ours.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
			received, _ := io.ReadAll(ours)
			answer <- received
		}()
		if _, err := authority.ServeJoin(t.Context(), theirs, undecided{}); outboard.KindOf(err) != outboard.Unreachable {
			t.Errorf("got %v, want Unreachable", err)
		}
		if got := string(<-answer); !strings.Contains(got, "the pool's state did not answer within") {
			t.Errorf("the joining node was told %q", got)
		}
	})
}

// A peer that sends nothing is not waited for beyond the context.
func TestServeJoinEnds(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := authority.ServeJoin(ctx, theirs, nobody{t}); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("got %v, want Protocol", err)
	}
}
