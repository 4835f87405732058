package ranks

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// letterHeadOf returns the head of a message.
func letterHeadOf(from, to uint32, tag, size uint64) []byte {
	b := binary.LittleEndian.AppendUint32(nil, from)
	b = binary.LittleEndian.AppendUint32(b, to)
	b = binary.LittleEndian.AppendUint64(b, tag)
	return binary.LittleEndian.AppendUint64(b, size)
}

// A job that has many groups, of which no rank receives, has no more of the node's memory than one
// with few; what is received, or lost with its group, is free again.
func TestMailboxesShareABound(t *testing.T) {
	var held atomic.Int64
	first, second := newMailbox(nopConn{}, &held, 1), newMailbox(nopConn{}, &held, 1)
	held.Store(maxServerHeld - 10)
	letter := func(n int) *bufio.Reader {
		return bufio.NewReader(bytes.NewReader(append(letterHeadOf(0, 1, 0, uint64(n)), make([]byte, n)...)))
	}
	if _, err := first.read(letter(8)); err != nil {
		t.Fatal(err)
	}
	_, err := second.read(letter(8))
	if _, ok := errors.AsType[*mailError](err); !ok || !strings.Contains(err.Error(), "4GiB") {
		t.Errorf("another group's message beyond the bound: %v", err)
	}
	first.release(8)
	if _, err := second.read(letter(8)); err != nil {
		t.Errorf("once the first was received: %v", err)
	}
	second.close()
	first.close()
	if n := held.Load(); n != maxServerHeld-10 {
		t.Errorf("%d bytes more are held than before", n-(maxServerHeld-10))
	}
	if _, err := second.read(letter(8)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed mailbox: %v", err)
	}
}

// A node that sends many small messages waits until they are received: no message is lost.
func TestMailboxWaitsWhileItIsFull(t *testing.T) {
	var held atomic.Int64
	m := newMailbox(nopConn{}, &held, 1)
	defer m.close()
	in := bufio.NewReader(bytes.NewReader(bytes.Repeat(letterHeadOf(0, 1, 0, 0), maxLetters+1)))
	for range maxLetters {
		if _, err := m.read(in); err != nil {
			t.Fatal(err)
		}
	}
	next := make(chan error, 1)
	go func() {
		_, err := m.read(in)
		next <- err
	}()
	m.release(0)
	if err := <-next; err != nil {
		t.Error(err)
	}
	go func() {
		_, err := m.read(bufio.NewReader(bytes.NewReader(letterHeadOf(0, 1, 0, 0))))
		next <- err
	}()
	if m.close(); !errors.Is(<-next, net.ErrClosed) {
		t.Error("a full mailbox that is closed reads a message")
	}
}

// A rank that leaves is announced although the other node has not read maxLetters of its messages, and
// the announcement is read although no rank has received as many.
func TestMarkOfAFullMailbox(t *testing.T) {
	var held atomic.Int64
	m := newMailbox(nopConn{}, &held, 1)
	defer m.close()
	for range maxLetters {
		if !m.post(&outgoing{to: 1}) {
			t.Fatal("a message was refused before the queue was full")
		}
	}
	if m.post(&outgoing{to: 1}) {
		t.Errorf("more than %d messages are in the queue", maxLetters)
	}
	if !m.post(&outgoing{to: endMark}) {
		t.Error("the mark was refused")
	}
	sent := append(bytes.Repeat(letterHeadOf(0, 1, 0, 0), maxLetters), letterHeadOf(0, endMark, 3, 0)...)
	in := bufio.NewReader(bytes.NewReader(sent))
	for range maxLetters {
		if _, err := m.read(in); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := m.read(in); err != nil || !i.isMark() {
		t.Errorf("got %v, %v, want the mark", i, err)
	}
}

// nopConn is a connection that is only closed.
type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }

// FuzzLetters: whatever another node sends, a mailbox holds what it counts, and no more than it
// was sent or may have.
func FuzzLetters(f *testing.F) {
	f.Add(append(letterHeadOf(0, 1, 7, 4), "abcd"...))
	f.Add(letterHeadOf(0, endMark, 3, 0))
	f.Add(letterHeadOf(0, leaveMark, 3, 1))
	f.Add(letterHeadOf(0, 1, 7, 1<<63))
	f.Add(letterHeadOf(0, 1, 7, maxLetter+1))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) >= letterHead && binary.LittleEndian.Uint64(sent[16:]) > 1<<20 && binary.LittleEndian.Uint64(sent[16:]) <= maxLetter {
			t.Skip("a large message is allowed, and slow to make")
		}
		var held atomic.Int64
		m := newMailbox(nopConn{}, &held, 1)
		in, total := bufio.NewReader(bytes.NewReader(sent)), int64(0)
		for range 8 {
			i, err := m.read(in)
			if err != nil {
				break
			}
			if i.isMark() && len(i.buf) > 0 {
				t.Errorf("a mark with %d bytes", len(i.buf))
			}
			total += int64(len(i.buf))
		}
		if held.Load() < total || total > int64(len(sent)) {
			t.Errorf("%d bytes are counted of %d, %d were sent", held.Load(), total, len(sent))
		}
		if m.close(); held.Load() != 0 {
			t.Errorf("%d bytes are held by a closed mailbox", held.Load())
		}
	})
}
