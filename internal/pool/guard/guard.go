// Package guard relays the NATS protocol of a client whose permissions are narrower than a server
// can check: it parses every message that the client sends, and refuses the messages that its rules
// do not allow.
//
// The permissions of a NATS server are about subjects. They do not cover the reply subject of
// a request, to which the server itself publishes the answer with rights of its own, nor the
// bodies and headers by which the JetStream API copies one stream into another, delivers a
// stream to any subject, or erases it. Rules see all of these.
package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/outboard-run/outboard"
)

const (
	bufferSize = 32 << 10
	// maxLine bounds a line of the protocol, which is the server's own bound.
	maxLine = 4 << 10
	// maxBody bounds a message with its headers, as the embedded server does.
	maxBody = 1 << 20
)

// A Message is a message that a client publishes. Its slices are valid during the call only.
type Message struct {
	Subject string
	// Reply is where the answer is published, "" for none.
	Reply string
	// Header is the message's header as it is sent, nil for none.
	Header []byte
	Body   []byte
}

// Rules decide which messages and subscriptions of a client are relayed. An error is the reason of
// a refusal.
type Rules interface {
	Publish(m Message) error
	// Subscribe reports whether a subscription is costly: one to messages of others, each of which the
	// server delivers once more while its publisher waits. A client may have few of them.
	Subscribe(subject, queue string) (costly bool, err error)
}

// A Guard relays the messages between one client and its server.
type Guard struct {
	Rules Rules
	// Credentials replace those in the client's CONNECT, by the names that the protocol has for them.
	Credentials map[string]string
	// Denied is called with each refused message and subscription. Its result is the answer to the
	// client if the message was a request.
	Denied func(err error) (answer []byte)
	// Deliver changes a message of the server before the client receives it. A nil Deliver
	// changes none.
	Deliver func(m *Message)
	// BatchOf returns of which batch a message is that the rules allow. A nil BatchOf means that there
	// are no batches.
	BatchOf func(m Message) Batch
	// Account counts what is held for the client.
	Account *Account
}

// errProtocol says that a client does not speak the protocol of NATS clients.
var errProtocol = errors.New("the client violates the NATS protocol")

// Relay copies between the client and the server until either ends, and closes both. It returns
// an error when the client violates the protocol, or has more held for it than its account allows.
func (g *Guard) Relay(server, client io.ReadWriteCloser) error {
	held := &holding{account: g.Account}
	defer held.close()
	if err := held.reserve(connCharge); err != nil {
		_, _ = client.Close(), server.Close()
		return err
	}
	subs := &subscriptions{all: make(map[string]*subscription), held: held}
	to := newClientWriter(client, held)
	var back, writing sync.WaitGroup
	writing.Go(func() {
		to.run()
		_, _ = client.Close(), server.Close() // Errors mean that they are closed already.
	})
	back.Go(func() {
		d := delivery{g: g, subs: subs, in: bufio.NewReaderSize(server, bufferSize), to: to, bodies: bodyReader{held: held}}
		to.finish(d.run())
	})
	r := relay{
		g: g, subs: subs, in: bufio.NewReaderSize(client, bufferSize), out: bufio.NewWriterSize(server, bufferSize), to: to,
		bodies: bodyReader{held: held}, batches: batches{held: held, all: make(map[string]*batch)},
	}
	err := r.run()
	_ = server.Close()
	back.Wait()
	writing.Wait()
	if err == nil {
		err = to.refusal()
	}
	return err
}

// relay is the direction from the client to the server.
type relay struct {
	g    *Guard
	subs *subscriptions
	in   *bufio.Reader
	out  *bufio.Writer
	to   *clientWriter

	bodies  bodyReader
	batches batches
}

// run relays operations until either side ends, which is no error.
func (r *relay) run() error {
	for {
		if r.in.Buffered() == 0 {
			if err := r.out.Flush(); err != nil {
				return nil //nolint:nilerr // The server has ended.
			}
		}
		err := r.step()
		switch {
		case err == nil:
		case errors.Is(err, errProtocol), outboard.KindOf(err) == outboard.Busy:
			return err
		default:
			return nil // Either side has ended.
		}
	}
}

// step relays one operation.
func (r *relay) step() error {
	line, err := r.line()
	if err != nil {
		return err
	}
	op, args, _ := strings.Cut(line, " ")
	switch op {
	case "PING", "PONG":
		return r.write(op)
	case "CONNECT":
		return r.connect(args)
	case "SUB":
		return r.subscribe(strings.Fields(args))
	case "UNSUB":
		return r.unsubscribe(strings.Fields(args))
	case "PUB":
		return r.publish(strings.Fields(args), false)
	case "HPUB":
		return r.publish(strings.Fields(args), true)
	}
	return fmt.Errorf("%w: an operation that no client has", errProtocol)
}

// line reads a line without its end.
func (r *relay) line() (string, error) {
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return "", fmt.Errorf("%w: a line of more than %d bytes", errProtocol, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return "", err
		}
		text, ok := strings.CutSuffix(string(line), "\r\n")
		if !ok || strings.ContainsAny(text, "\r\x00") {
			return "", fmt.Errorf("%w: a line does not end as it should", errProtocol)
		}
		return text, nil
	}
}

func (r *relay) write(parts ...string) error {
	_, err := r.out.WriteString(strings.Join(parts, " ") + "\r\n")
	return err
}

// connect relays the client's options with the guard's credentials in place of its own.
func (r *relay) connect(args string) error {
	var options map[string]any
	if err := json.Unmarshal([]byte(args), &options); err != nil || options == nil {
		return fmt.Errorf("%w: CONNECT without options", errProtocol)
	}
	for _, credential := range []string{"user", "pass", "jwt", "nkey", "sig", "account", "auth_token"} {
		delete(options, credential)
	}
	for name, credential := range r.g.Credentials {
		options[name] = credential
	}
	// Verbose answers and pedantic checks are of no use to the pool's own client.
	options["verbose"], options["pedantic"] = false, false
	text, err := json.Marshal(options)
	if err != nil {
		return err
	}
	return r.write("CONNECT", string(text))
}

func (r *relay) subscribe(args []string) error {
	if len(args) != 2 && len(args) != 3 {
		return fmt.Errorf("%w: SUB has %d arguments", errProtocol, len(args))
	}
	queue := ""
	if len(args) == 3 {
		queue = args[1]
	}
	costly, err := r.g.Rules.Subscribe(args[0], queue)
	if err != nil {
		_ = r.g.Denied(err) // A subscription has no answer.
		return nil
	}
	if err := r.subs.add(args[0], args[len(args)-1], costly); err != nil {
		return err
	}
	return r.write(append([]string{"SUB"}, args...)...)
}

func (r *relay) unsubscribe(args []string) error {
	if len(args) != 1 && len(args) != 2 {
		return fmt.Errorf("%w: UNSUB has %d arguments", errProtocol, len(args))
	}
	limit := 0
	if len(args) == 2 {
		var err error
		if limit, err = strconv.Atoi(args[1]); err != nil || limit < 0 {
			return fmt.Errorf("%w: UNSUB after %q messages", errProtocol, args[1])
		}
	}
	r.subs.end(args[0], limit)
	return r.write(append([]string{"UNSUB"}, args...)...)
}

// publish relays a message: SUBJECT [REPLY] [HEADER-SIZE] SIZE, and the message.
func (r *relay) publish(args []string, withHeader bool) error {
	m, header, size, err := parsePublish(args, withHeader)
	if err != nil {
		return err
	}
	body, free, err := r.bodies.read(r.in, size+2)
	if err != nil {
		return err
	}
	defer free()
	if string(body[size:]) != "\r\n" {
		return fmt.Errorf("%w: a message has another size than it says", errProtocol)
	}
	if m.Body = body[header:size]; withHeader {
		m.Header = body[:header]
	}
	var part Batch
	if r.g.BatchOf != nil {
		part = r.g.BatchOf(m)
	}
	err = r.g.Rules.Publish(m)
	if part.ID != "" {
		return r.publishPart(part, m, operation(m, body), body, err)
	}
	if err != nil {
		return r.answer(m.Reply, r.g.Denied(err))
	}
	return r.forward(operation(m, body), body)
}

// answer delivers an answer of the guard's own to the client's subscriptions to the subject. The
// server does not see it: one that the server routed could arrive there before the subscription,
// and would have the rights of its publisher.
func (r *relay) answer(subject string, text []byte) error {
	if subject == "" {
		return nil
	}
	for _, sid := range r.subs.matching(subject) {
		if err := r.to.message(subject, sid, text); err != nil {
			return err
		}
	}
	return nil
}

// forward sends an operation to the server.
func (r *relay) forward(parts ...[]byte) error {
	for _, part := range parts {
		if _, err := r.out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// operation returns the line that precedes a message to the server, whose body is followed by the end
// of a line.
func operation(m Message, body []byte) []byte {
	line := make([]byte, 0, 128)
	if m.Header == nil {
		line = append(line, "PUB "...)
	} else {
		line = append(line, "HPUB "...)
	}
	line = append(line, m.Subject...)
	if m.Reply != "" {
		line = append(append(line, ' '), m.Reply...)
	}
	if m.Header != nil {
		line = strconv.AppendInt(append(line, ' '), int64(len(m.Header)), 10)
	}
	line = strconv.AppendInt(append(line, ' '), int64(len(body)-len(lineEnd)), 10)
	return append(line, lineEnd...)
}

func parsePublish(args []string, withHeader bool) (m Message, header, size int, err error) {
	sizes := 1
	if withHeader {
		sizes = 2
	}
	switch len(args) - sizes {
	case 1:
		m.Subject = args[0]
	case 2:
		m.Subject, m.Reply = args[0], args[1]
	default:
		return m, 0, 0, fmt.Errorf("%w: a message with %d arguments", errProtocol, len(args))
	}
	if size, err = parseSize(args[len(args)-1]); err != nil {
		return m, 0, 0, err
	}
	if withHeader {
		if header, err = parseSize(args[len(args)-2]); err != nil {
			return m, 0, 0, err
		}
	}
	if header > size {
		return m, 0, 0, fmt.Errorf("%w: a header is larger than its message", errProtocol)
	}
	return m, header, size, nil
}

func parseSize(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n > maxBody {
		return 0, fmt.Errorf("%w: a message of %q bytes", errProtocol, text)
	}
	return int(n), nil
}
