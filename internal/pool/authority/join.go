package authority

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/outboard-run/outboard"
)

// JoinProtocol is the TLS application protocol of the joining exchange: one
// request and one answer, each a 4-byte big-endian length and that much JSON.
const JoinProtocol = "outboard-join/1"

const (
	maxJoinMessage = 64 << 10
	maxPeers       = 64
	// JoinTimeout bounds the whole exchange, and admitTimeout the decision, so that there is time to
	// send the reason of a refusal.
	JoinTimeout  = 15 * time.Second
	admitTimeout = JoinTimeout - 3*time.Second
)

// joinRequest asks for a certificate.
type joinRequest struct {
	Name   outboard.NodeID `json:"name"`
	Secret []byte          `json:"secret"`
	CSR    []byte          `json:"csr"`
}

// joinAnswer is the certificate, or the reason of a refusal.
type joinAnswer struct {
	Cert []byte `json:"cert,omitempty"`
	// Peers are addresses of nodes of the pool.
	Peers  []string      `json:"peers,omitempty"`
	Kind   outboard.Kind `json:"kind,omitempty"`
	Reason string        `json:"reason,omitempty"`
}

// Join makes a node a member of the pool that a node at addr belongs to, with a
// token. It returns the identity, and addresses of nodes of the pool.
func Join(ctx context.Context, addr string, token Token, name outboard.NodeID) (*Identity, []string, error) {
	op := "join " + addr
	if err := CheckName(name); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, JoinTimeout)
	defer cancel()
	var root *x509.Certificate
	dialer := &tls.Dialer{Config: token.clientTLS(&root)}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		if outboard.KindOf(err) == outboard.Denied {
			return nil, nil, err
		}
		if _, noTLS := errors.AsType[tls.RecordHeaderError](err); noTLS {
			return nil, nil, outboard.Errorf(outboard.Protocol, op,
				"no node answers at this address, since it speaks no TLS: name the address that `outboard token` prints, with the port of the node's --listen")
		}
		return nil, nil, &outboard.Error{Op: op, Kind: outboard.Unreachable, Err: err}
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	id, peers, err := exchange(conn, op, root, token, name)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = outboard.Errorf(outboard.Unreachable, op, "the node did not answer within %v: see `outboard status` there", JoinTimeout)
	}
	return id, peers, err
}

// clientTLS returns a configuration that trusts the authority that the token names, and stores the
// certificate of that authority in root.
func (t Token) clientTLS(root **x509.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{JoinProtocol},
		InsecureSkipVerify: true, // VerifyConnection verifies the peer.
		VerifyConnection: func(cs tls.ConnectionState) error {
			certs := cs.PeerCertificates
			last := certs[len(certs)-1]
			if !t.isRoot(last.RawSubjectPublicKeyInfo) {
				return denied("the node is of another pool than the token, or the pool's authority was renewed since: make a token on that node, with `outboard token`")
			}
			if cs.NegotiatedProtocol != JoinProtocol {
				return outboard.Errorf(outboard.Protocol, "join", "the node admits no nodes at this address")
			}
			*root = last
			_, err := nodeOf(last, certs, time.Now())
			return err
		},
	}
}

func exchange(conn net.Conn, op string, root *x509.Certificate, token Token, name outboard.NodeID) (*Identity, []string, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := writeMessage(conn, joinRequest{Name: name, Secret: token.secret[:], CSR: csr}); err != nil {
		return nil, nil, &outboard.Error{Op: op, Kind: outboard.Unreachable, Err: err}
	}
	var answer joinAnswer
	if err := readMessage(conn, &answer); err != nil {
		return nil, nil, &outboard.Error{Op: op, Kind: outboard.Unreachable, Err: err}
	}
	if answer.Reason != "" || answer.Kind != 0 {
		return nil, nil, outboard.Errorf(answer.Kind, op, "%s", printable(answer.Reason))
	}
	cert, err := x509.ParseCertificate(answer.Cert)
	if err != nil {
		return nil, nil, outboard.Errorf(outboard.Protocol, op, "the certificate is malformed")
	}
	peer, err := nodeOf(root, []*x509.Certificate{cert}, time.Now())
	if err != nil || peer.Node != name || !key.PublicKey.Equal(cert.PublicKey) || len(answer.Peers) > maxPeers {
		return nil, nil, outboard.Errorf(outboard.Protocol, op, "the certificate is not the one that was asked for")
	}
	return newIdentity(cert, root, key), answer.Peers, nil
}

// printable replaces control characters in a peer's text, which would reach the user's
// terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text[:min(len(text), 500)])
}

// An Admission decides about a joining node.
type Admission interface {
	// Admit spends the token with that hash, if the pool has it and the name is free, and returns a
	// certificate for the key of the request, and addresses of nodes. The text of its error is sent
	// to the joining node.
	Admit(ctx context.Context, name outboard.NodeID, tokenHash string, csr *x509.CertificateRequest) (*x509.Certificate, []string, error)
}

// ServeJoin serves one joining node on a connection with the protocol JoinProtocol, and closes
// it. It returns the name that was admitted.
func ServeJoin(ctx context.Context, conn net.Conn, pool Admission) (outboard.NodeID, error) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(JoinTimeout)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, JoinTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var req joinRequest
	if err := readMessage(conn, &req); err != nil {
		return "", &outboard.Error{Op: "admit a node", Kind: outboard.Protocol, Err: err}
	}
	deciding, decided := context.WithTimeout(ctx, admitTimeout)
	defer decided()
	answer, err := admit(deciding, req, pool)
	if err != nil {
		if errors.Is(deciding.Err(), context.DeadlineExceeded) {
			err = outboard.Errorf(outboard.Unreachable, "admit a node",
				"the pool's state did not answer within %v: are the nodes that keep it down? See `outboard status` on the node that was asked", admitTimeout)
		}
		kind := outboard.KindOf(err)
		if kind == outboard.Other {
			kind = outboard.Unreachable // 0 stands for no error.
		}
		answer = joinAnswer{Kind: kind, Reason: ReasonOf(err)}
	}
	return req.Name, errors.Join(err, writeMessage(conn, answer))
}

// ReasonOf returns the text of the innermost error that names a kind.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*outboard.Error](err); ok && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

func admit(ctx context.Context, req joinRequest, pool Admission) (joinAnswer, error) {
	if err := CheckName(req.Name); err != nil {
		return joinAnswer{}, err
	}
	csr, err := ParseRequest(req.CSR)
	if err != nil {
		return joinAnswer{}, err
	}
	if len(req.Secret) != secretLen {
		return joinAnswer{}, outboard.Errorf(outboard.Protocol, "admit a node", "the secret has %d bytes", len(req.Secret))
	}
	cert, peers, err := pool.Admit(ctx, req.Name, hashSecret(req.Secret), csr)
	if err != nil {
		return joinAnswer{}, err
	}
	return joinAnswer{Cert: cert.Raw, Peers: peers[:min(len(peers), maxPeers)]}, nil
}

// ParseRequest parses a certificate request, and checks that its sender has the key.
func ParseRequest(der []byte) (*x509.CertificateRequest, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "admit a node", "the certificate request: %w", err)
	}
	return csr, nil
}

func writeMessage(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func readMessage(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxJoinMessage {
		return fmt.Errorf("a message of %d bytes is too long", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
