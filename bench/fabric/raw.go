package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
)

// serveRaw echoes frames over a unix socket: the lower bound for all stacks that wake by a socket.
func serveRaw(target string) (string, func() error, error) {
	l, err := net.Listen("unix", strings.TrimPrefix(target, "unix:")) //nolint:noctx // it does not wait
	if err != nil {
		return "", nil, err
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { echoFrames(c) })
		}
	})
	return target, func() error {
		err := l.Close()
		all.Wait()
		return err
	}, nil
}

func echoFrames(c net.Conn) {
	defer c.Close()
	var frame []byte
	for {
		var err error
		if frame, err = readFrame(c, frame); err != nil {
			return
		}
		if _, err := c.Write(frame); err != nil {
			return
		}
	}
}

const frameHead = 4

// readFrame reads a length and that many bytes, into buf if it is long enough, and
// returns both together.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	if len(buf) < frameHead {
		buf = make([]byte, frameHead)
	}
	// One read gets a small frame as a whole, since buf has the length of the last frame.
	n, err := io.ReadAtLeast(r, buf, frameHead)
	if err != nil {
		return nil, err
	}
	length := frameHead + int(binary.LittleEndian.Uint32(buf))
	if n > length {
		return nil, errors.New("more than one frame")
	}
	if length > len(buf) {
		buf = append(buf[:n], make([]byte, length-n)...)
	}
	_, err = io.ReadFull(r, buf[n:length])
	return buf[:length], err
}

// rawCaller returns a function that makes one call over a unix socket.
func rawCaller(ctx context.Context, target string, size int) (func() error, io.Closer, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(target, "unix:"))
	if err != nil {
		return nil, nil, err
	}
	request := binary.LittleEndian.AppendUint32(nil, uint32(size))
	request = append(request, make([]byte, size)...)
	var reply []byte
	return func() error {
		if _, err := c.Write(request); err != nil {
			return err
		}
		reply, err = readFrame(c, reply)
		if err == nil && len(reply) != len(request) {
			err = errWrong
		}
		return err
	}, c, nil
}
