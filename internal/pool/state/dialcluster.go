package state

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
)

// clusterConn is a connection to a server of an existing cluster, from which the server's INFO is
// read first. The next message is the client's CONNECT.
type clusterConn struct {
	net.Conn
	in io.Reader
}

// Read implements net.Conn.
func (c *clusterConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// dialCluster connects to the server to which a client is connected, in the same way, and returns the
// credentials with which the client would connect there.
func dialCluster(ctx context.Context, nc *nats.Conn) (net.Conn, map[string]string, error) {
	addr, err := url.Parse(nc.ConnectedUrl())
	if err != nil || addr.Host == "" {
		return nil, nil, nats.ErrDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr.Host)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c := &clusterConn{Conn: conn}
	nonce, err := c.handshake(ctx, nc, addr.Hostname())
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	credentials, err := credentialsOf(nc, addr.User, nonce)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, credentials, nil
}

// handshake reads the server's INFO, which the connection then returns again, and makes the TLS handshake
// if the server or the client requires one. It returns the nonce that the client has to sign.
func (c *clusterConn) handshake(ctx context.Context, nc *nats.Conn, host string) (nonce string, err error) {
	in := bufio.NewReader(c.Conn)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	text, ok := bytes.CutPrefix(line, []byte("INFO "))
	var info struct {
		Nonce       string `json:"nonce"`
		TLSRequired bool   `json:"tls_required"`
	}
	if !ok || json.Unmarshal(text, &info) != nil {
		return "", errors.New("the server does not begin with its INFO")
	}
	rest := io.Reader(in)
	if info.TLSRequired || nc.Opts.Secure {
		if in.Buffered() > 0 {
			return "", errors.New("the server sends more than its INFO before the TLS handshake")
		}
		secure := tls.Client(c.Conn, tlsOf(nc, host))
		if err := secure.HandshakeContext(ctx); err != nil {
			return "", err
		}
		c.Conn, rest = secure, secure
	}
	c.in = io.MultiReader(bytes.NewReader(line), rest)
	return info.Nonce, nil
}

// tlsOf returns the configuration of TLS to the host to which a client is connected. A server that
// another one has named may be known by an address, while its certificate has the name by which the
// client verified it.
func tlsOf(nc *nats.Conn, host string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if nc.Opts.TLSConfig != nil {
		config = nc.Opts.TLSConfig.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = host
		if state, err := nc.TLSConnectionState(); err == nil && state.ServerName != "" {
			config.ServerName = state.ServerName
		}
	}
	return config
}

// credentialsOf returns the credentials of a client as the protocol names them: of a URL, and of a
// file with a token of the user (a JWT) and the key that signs the server's nonce.
func credentialsOf(nc *nats.Conn, user *url.Userinfo, nonce string) (map[string]string, error) {
	credentials := make(map[string]string)
	if password, ok := user.Password(); ok {
		credentials["user"], credentials["pass"] = user.Username(), password
	} else if user.Username() != "" {
		credentials["auth_token"] = user.Username()
	}
	if nc.Opts.UserJWT == nil {
		return credentials, nil
	}
	token, err := nc.Opts.UserJWT()
	if err != nil {
		return nil, fmt.Errorf("the user's credentials: %w", err)
	}
	signature, err := nc.Opts.SignatureCB([]byte(nonce))
	if err != nil {
		return nil, fmt.Errorf("the user's credentials: %w", err)
	}
	credentials["jwt"], credentials["sig"] = token, base64.RawURLEncoding.EncodeToString(signature)
	return credentials, nil
}
