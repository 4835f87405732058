package framed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
)

// An opened stream reaches the peer when it is flushed, before anything is written, and what is
// copied through it arrives whole.
func TestStreamCopies(t *testing.T) {
	client, server := transports["tcp"](t, Options{})
	s, err := client.Open(t.Context(), "copy", []byte("head"))
	if err != nil {
		t.Fatal(err)
	}
	s.Flush()
	peer, err := server.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if peer.Method() != "copy" || string(peer.Header()) != "head" || peer.Conn() != server || s.Conn() != client {
		t.Errorf("the stream is %q with %q, of another connection: %v, %v", peer.Method(), peer.Header(), peer.Conn() != server, s.Conn() != client)
	}
	if client.OpenStreams() != 1 || server.OpenStreams() != 1 || client.MaxStreams() < 1 {
		t.Errorf("the sides have %d and %d streams of %d", client.OpenStreams(), server.OpenStreams(), client.MaxStreams())
	}
	want := bytes.Repeat([]byte("outboard "), 1<<16)
	sent := make(chan error, 1)
	go func() {
		_, err := s.ReadFrom(bytes.NewReader(want))
		sent <- errors.Join(err, s.CloseWrite())
	}()
	var got bytes.Buffer
	n, err := peer.WriteTo(&got)
	if err = errors.Join(err, <-sent); err != nil || n != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d of %d bytes arrived: %v", n, len(want), err)
	}
}

// What the source or the destination of a copy fails with is returned, with the bytes until then.
func TestTransferFails(t *testing.T) {
	broken := errors.New("broken")
	read := strings.NewReader("some text").Read
	if n, err := transfer(func([]byte) (int, error) { return 4, nil }, read); n != 4 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a short write: %d, %v", n, err)
	}
	write := func(p []byte) (int, error) { return len(p), nil }
	if n, err := transfer(write, func(p []byte) (int, error) { return copy(p, "text"), broken }); n != 4 || !errors.Is(err, broken) {
		t.Errorf("a source that breaks: %d, %v", n, err)
	}
}

// A connection that one side closed is not lost; one whose network ends is.
func TestLost(t *testing.T) {
	client, server := transports["tcp"](t, Options{})
	if client.Lost() {
		t.Error("a connection that lives is lost")
	}
	if err := server.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.Close()
	<-server.Done()
	if client.Lost() || server.Lost() {
		t.Errorf("after Close the sides end with %v and %v", client.Err(), server.Err())
	}
	client, server = transports["tcp"](t, Options{})
	if err := errors.Join(client.Handshake(t.Context()), server.Handshake(t.Context())); err != nil {
		t.Fatal(err)
	}
	_ = client.socket.Close()
	<-server.Done()
	if !server.Lost() || outboard.KindOf(server.Err()) != outboard.Unreachable {
		t.Errorf("after the end of the network it ends with %v", server.Err())
	}
}

// Dial returns after the handshake, in which each side learns the certificate of the other one; a
// server that none of the trusted authorities knows is refused.
func TestDial(t *testing.T) {
	clientTLS, serverTLS := certificates(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *Conn, 2)
	go func() {
		defer close(accepted)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- Server(nc, Options{TLS: serverTLS})
		}
	}()
	c, err := Dial(t.Context(), l.Addr().String(), clientTLS, Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := <-accepted
	if peer := c.Peer(); len(peer) != 1 || peer[0].Subject.CommonName != "harbour" {
		t.Errorf("the client's peer has the certificates %v", peer)
	}
	if err := server.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if peer := server.Peer(); len(peer) != 1 || peer[0].Subject.CommonName != "dinghy" {
		t.Errorf("the server's peer has the certificates %v", peer)
	}
	c.Close()
	server.Close()

	stranger, _ := certificates(t)
	if _, err := Dial(t.Context(), l.Addr().String(), stranger, Options{}); err == nil {
		t.Error("a server of another authority was accepted")
	}
	(<-accepted).Close()
	refused := errors.New("no such network")
	if _, err := Dial(t.Context(), l.Addr().String(), clientTLS, Options{Dialed: func(net.Conn) error { return refused }}); !errors.Is(err, refused) {
		t.Errorf("an error of Dialed became %v", err)
	}
	(<-accepted).Close()
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := Dial(ctx, addr, clientTLS, Options{}); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("without a server the error is %v", err)
	}
}

// The text of an error that crosses the wire is valid UTF-8 of a bounded size, whatever it was.
func TestErrorTexts(t *testing.T) {
	for _, text := range []string{"no room", "a\xffb", strings.Repeat("é", maxText), strings.Repeat("\xff", 3*maxText)} {
		b := appendError(nil, frameReset, 7, outboard.Busy, text)
		kind, got, err := parseError(b[headerSize:])
		if err != nil || kind != outboard.Busy || len(got) > maxText || !utf8.ValidString(got) || got == "" {
			t.Errorf("%.10q arrives as %v %.20q of %d bytes: %v", text, kind, got, len(got), err)
		}
		if utf8.ValidString(text) && len(text) <= maxText && got != text {
			t.Errorf("%q arrives as %q", text, got)
		}
	}
}
