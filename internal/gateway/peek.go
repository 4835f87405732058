package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
)

// The reasons why Peek finds no app.
var (
	// ErrHTTP2 is a client that begins with HTTP/2.
	ErrHTTP2 = errors.New("the client speaks HTTP/2, which is not spoken here without TLS")
	// ErrNoRequest is a client that left without a request.
	ErrNoRequest = errors.New("the connection ended before its first request")
	// ErrSlow is a client that took too long for its first line.
	ErrSlow = errors.New("the first request did not come in time")
	// ErrHeadTooLarge is a first line that does not end.
	ErrHeadTooLarge = errors.New("the first request's line is too long")
	// ErrNoHTTP is a client that speaks something else.
	ErrNoHTTP = errors.New("the first line is no request of HTTP/1.1")
)

// Limits bound what Peek does for a connection. The zero value is well.
type Limits struct {
	// Line is how long the first line may be. Default: 16 KiB.
	Line int
	// Time is how long it may take to come. Default: 10 s.
	Time time.Duration
}

func (l *Limits) setDefaults() {
	if l.Line == 0 {
		l.Line = 16 << 10
	}
	if l.Time == 0 {
		l.Time = 10 * time.Second
	}
}

// Peek reads the first line of a connection's first request, and perhaps more, and
// finds the app that it is for: the first segment of its path, which may be "". It
// returns what it read: that belongs to the connection. After an error Refuse answers
// the client.
func Peek(conn net.Conn, limits Limits) (app string, read []byte, err error) {
	limits.setDefaults()
	if err := conn.SetReadDeadline(time.Now().Add(limits.Time)); err != nil {
		return "", nil, err
	}
	line, read, err := readLine(conn, limits.Line)
	if err != nil {
		return "", read, err
	}
	if app, err = appOfLine(line); err != nil {
		return "", read, err
	}
	return app, read, conn.SetReadDeadline(time.Time{})
}

// readLine reads until there is one line.
func readLine(conn net.Conn, limit int) (line, read []byte, err error) {
	read = make([]byte, 0, min(limit, 2<<10))
	for {
		n, err := conn.Read(read[len(read):cap(read)])
		seen := len(read)
		read = read[:seen+n]
		if end := bytes.IndexByte(read[seen:], '\n'); end >= 0 {
			return read[:seen+end], read, nil
		}
		if err != nil {
			return nil, read, whyNoLine(err, len(read))
		}
		if len(read) >= limit {
			return nil, read, ErrHeadTooLarge
		}
		if len(read) == cap(read) {
			read = append(make([]byte, 0, min(limit, 4*cap(read))), read...)
		}
	}
}

func whyNoLine(err error, read int) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && read > 0:
		return ErrSlow
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrNoRequest, err)
	case read == 0:
		return fmt.Errorf("%w: %w", ErrNoRequest, err)
	}
	return fmt.Errorf("%w: %w", ErrNoHTTP, err)
}

// appOfLine finds the app in a request line.
func appOfLine(line []byte) (string, error) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if string(line) == "PRI * HTTP/2.0" { // RFC 9113, section 3.4
		return "", ErrHTTP2
	}
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || !isToken(method) || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return "", fmt.Errorf("%w: %q", ErrNoHTTP, clip(line))
	}
	return appOfTarget(string(target))
}

// AppRead is the app that a connection's first request is for, of which Peek has read so much, or
// "".
func AppRead(read []byte) string {
	line, _, _ := bytes.Cut(read, []byte("\n"))
	app, err := appOfLine(line)
	if err != nil {
		return ""
	}
	return app
}

// appOfTarget reads a target as net/http does, so that both find the same app.
func appOfTarget(target string) (string, error) {
	if target == "*" {
		return "", nil
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return "", fmt.Errorf("%w: %q", ErrNoHTTP, clip([]byte(target)))
	}
	return appOf(u.Path), nil
}

// Refuse answers a client whose first request finds no way, as far as there is an
// answer, and closes the connection. An outboard.Error, like one for an app that is
// not known, is answered as Status says.
func Refuse(conn net.Conn, err error) {
	if answer := refusal(err); answer != nil {
		_ = conn.SetDeadline(time.Now().Add(lingerLimit))
		if _, err := conn.Write(answer); err == nil {
			linger(conn)
		}
	}
	_ = conn.Close()
}

// Of a client that is refused we read this much and for this long: closing a
// connection with something unread would take the answer back.
const (
	lingerLimit = time.Second
	lingerBytes = 256 << 10
)

func linger(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, conn, lingerBytes)
}

// goAway are two frames of HTTP/2 (RFC 9113): empty SETTINGS, and GOAWAY with the
// reason HTTP_1_1_REQUIRED.
const goAway = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x0d"

func refusal(err error) []byte {
	switch {
	case errors.Is(err, ErrHTTP2):
		return []byte(goAway)
	case errors.Is(err, ErrNoRequest):
		return nil
	case errors.Is(err, ErrSlow):
		return message(problem(http.StatusRequestTimeout, err.Error()))
	case errors.Is(err, ErrHeadTooLarge):
		return message(problem(http.StatusRequestURITooLong, err.Error()))
	case outboard.KindOf(err) == outboard.NotFound:
		return message(NewProblem(err))
	}
	if _, ok := errors.AsType[*outboard.Error](err); ok {
		return message(NewProblem(err))
	}
	return message(problem(http.StatusBadRequest, detailOf(err)))
}

// message is a problem as the last answer of a connection.
func message(p Problem) []byte {
	body := p.body()
	head := "HTTP/1.1 " + strconv.Itoa(p.Status) + " " + p.Title + "\r\nContent-Type: application/problem+json\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\nConnection: close\r\n"
	if p.passes() {
		head += "Retry-After: " + retryAfter + "\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}
