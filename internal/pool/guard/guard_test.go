package guard_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// open allows what does not begin with "secret".
type open struct{}

var errSecret = errors.New("it is secret")

func (open) Publish(m guard.Message) error {
	if strings.HasPrefix(m.Subject, "secret") || strings.HasPrefix(m.Reply, "secret") || bytes.Contains(m.Body, []byte("secret")) {
		return errSecret
	}
	return nil
}

func (open) Subscribe(subject, _ string) (costly bool, err error) {
	if strings.HasPrefix(subject, "secret") {
		return false, errSecret
	}
	return subject == "changes", nil
}

// end is one side of a relay: it sends in, and keeps what it receives.
type end struct {
	in  io.Reader
	out bytes.Buffer
}

func (e *end) Read(p []byte) (int, error)  { return e.in.Read(p) }
func (e *end) Write(p []byte) (int, error) { return e.out.Write(p) }
func (e *end) Close() error                { return nil }

func relay(in string) (out string, denied int, err error) {
	server, client := &end{in: strings.NewReader("")}, &end{in: strings.NewReader(in)}
	g := &guard.Guard{Rules: open{}, Credentials: map[string]string{"auth_token": "token"}, Denied: func(error) []byte { denied++; return nil }}
	err = g.Relay(server, client)
	return server.out.String(), denied, err
}

// deliver returns what the client receives of what the server sends.
func deliver(in string, change func(*guard.Message)) string {
	server, client := &end{in: strings.NewReader(in)}, &end{in: strings.NewReader("")}
	g := &guard.Guard{Rules: open{}, Denied: func(error) []byte { return nil }, Deliver: change}
	_ = g.Relay(server, client)
	return client.out.String()
}

// TestRefusalIsAnswered: the answer to a refused request comes on the client's connection, also
// to the very first one, and only to subscriptions of the client itself.
func TestRefusalIsAnswered(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"inbox":           {"SUB i.* 7\r\nPUB secret i.1 0\r\n\r\n", "MSG i.1 7 2\r\nno\r\n"},
		"below":           {"SUB i.> 7\r\nPUB secret i.1.2 0\r\n\r\n", "MSG i.1.2 7 2\r\nno\r\n"},
		"queue":           {"SUB i.1 q 7\r\nPUB secret i.1 0\r\n\r\n", "MSG i.1 7 2\r\nno\r\n"},
		"other subject":   {"SUB i.* 7\r\nPUB secret $KV.outboard.policies 0\r\n\r\n", ""},
		"longer subject":  {"SUB i.* 7\r\nPUB secret i.1.2 0\r\n\r\n", ""},
		"no subscription": {"PUB secret i.1 0\r\n\r\n", ""},
		"ended":           {"SUB i.* 7\r\nUNSUB 7\r\nPUB secret i.1 0\r\n\r\n", ""},
		"ends later":      {"SUB i.* 7\r\nUNSUB 7 1\r\nPUB secret i.1 0\r\n\r\n", "MSG i.1 7 2\r\nno\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			// The server sends nothing before the client has ended.
			silent, closed := io.Pipe()
			server, client := &end{in: silent}, &end{in: io.MultiReader(strings.NewReader(c.in), closing{closed})}
			g := &guard.Guard{Rules: open{}, Denied: func(error) []byte { return []byte("no") }}
			if err := g.Relay(server, client); err != nil {
				t.Error(err)
			}
			if got := client.out.String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// closing ends a server's stream when the client's has been read.
type closing struct{ io.Closer }

func (c closing) Read([]byte) (int, error) { return 0, errors.Join(io.EOF, c.Close()) }

// TestSubscriptionsAreBounded: subscriptions take memory of the server.
func TestSubscriptionsAreBounded(t *testing.T) {
	var in strings.Builder
	for i := range 1 << 16 {
		fmt.Fprintf(&in, "SUB a %d\r\nUNSUB %d\r\nSUB a %d\r\n", i, i, i)
	}
	if _, _, err := relay(in.String() + "SUB a 1\r\n"); err != nil {
		t.Errorf("an id that is used again: %v", err)
	}
	if _, _, err := relay(in.String() + "SUB a more\r\n"); err == nil {
		t.Error("there is no limit")
	}
}

// TestCostlySubscriptionsAreBounded: each change of the table is delivered to all of them before its
// writer is answered. With 60,000, a write of the pool's leases took 169 ms instead of 0.3.
func TestCostlySubscriptionsAreBounded(t *testing.T) {
	var in strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&in, "SUB changes %d\r\nUNSUB %d\r\nSUB a %d\r\nSUB changes x\r\nSUB a x\r\n", i, i, i)
	}
	if _, _, err := relay(in.String()); err != nil {
		t.Errorf("subscriptions that end, and an id that is used again: %v", err)
	}
	for i := range 40 {
		fmt.Fprintf(&in, "SUB changes y%d\r\nSUB a y%d\r\n", i, i)
	}
	if _, _, err := relay(in.String()); err == nil {
		t.Error("there is no limit")
	}
}

func TestDeliver(t *testing.T) {
	blank := func(m *guard.Message) {
		if bytes.Contains(m.Body, []byte("secret")) {
			m.Header, m.Body = []byte("NATS/1.0\r\n\r\n"), nil
		}
	}
	long := `INFO {"server_id":"` + strings.Repeat("x", 100<<10) + "\"}\r\n"
	for name, c := range map[string]struct{ in, out string }{
		"passes": {"PING\r\nMSG a 1 2\r\nhi\r\nMSG a 1 r 2\r\nhi\r\nHMSG a 1 r 4 6\r\nabcdhi\r\n", ""},
		"long":   {long + "PING\r\n", ""},
		"other servers": {
			`INFO {"auth_required":true,"connect_urls":["10.0.0.1:4222"],"headers":true,"nonce":"n","tls_required":true}` + "\r\nPING\r\n",
			`INFO {"headers":true}` + "\r\nPING\r\n",
		},
		"no INFO":  {"INFO x\r\nPING\r\n", "none"},
		"changed":  {"MSG a 1 6\r\nsecret\r\nPING\r\n", "HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n"},
		"a line":   {"MSG a 1 8\r\nPING\r\nab\r\nPING\r\n", ""},
		"no size":  {"MSG a 1 x\r\nPING\r\n", "none"},
		"cut":      {"MSG a 1 10\r\nab", "none"},
		"too long": {"MSG a 1 99999999\r\nab", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			want := c.out
			switch want {
			case "":
				want = c.in
			case "none":
				want = ""
			}
			if got := deliver(c.in, blank); got != want {
				t.Errorf("got %.200q, want %.200q", got, want)
			}
		})
	}
}

// FuzzDeliver: whatever a server sends, nothing of a message that is to be blanked is delivered,
// and what is delivered is read in the same way again.
func FuzzDeliver(f *testing.F) {
	f.Add("INFO {}\r\nPING\r\nMSG a 1 2\r\nhi\r\nHMSG a 1 r 2 4\r\nabhi\r\n")
	f.Add("MSG a 1 6\r\nsecret\r\n-ERR 'x'\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		same := func(*guard.Message) {}
		out := deliver(in, same)
		if again := deliver(out, same); again != out {
			t.Errorf("%q became %q, then %q", in, out, again)
		}
	})
}

func TestRelay(t *testing.T) {
	for name, c := range map[string]struct {
		in, out string
		denied  int
		broken  bool
	}{
		"passes":         {in: "PING\r\nSUB a q 1\r\nPUB a 2\r\nhi\r\nHPUB a r 4 6\r\nabcdhi\r\nUNSUB 1\r\n", out: "PING\r\nSUB a q 1\r\nPUB a 2\r\nhi\r\nHPUB a r 4 6\r\nabcdhi\r\nUNSUB 1\r\n"},
		"credentials":    {in: `CONNECT {"user":"a","auth_token":"b","verbose":true}` + "\r\n", out: `CONNECT {"auth_token":"token","pedantic":false,"verbose":false}` + "\r\n"},
		"subject":        {in: "PUB secret 0\r\n\r\nPING\r\n", out: "PING\r\n", denied: 1},
		"reply":          {in: "PUB a secret 0\r\n\r\nPING\r\n", out: "PING\r\n", denied: 1},
		"subscription":   {in: "SUB secret 1\r\nPING\r\n", out: "PING\r\n", denied: 1},
		"operation":      {in: "RMSG $G a 0\r\n\r\n", broken: true},
		"lower case":     {in: "pub a 0\r\n\r\n", broken: true},
		"size":           {in: "PUB a 1\r\nab\r\n", broken: true},
		"negative size":  {in: "PUB a -1\r\n\r\n", broken: true},
		"large size":     {in: "PUB a 1048577\r\n", broken: true},
		"header size":    {in: "HPUB a 3 2\r\nab\r\n", broken: true},
		"long line":      {in: "SUB " + strings.Repeat("a", 5000) + " 1\r\n", broken: true},
		"bare line end":  {in: "PING\n", broken: true},
		"hidden line":    {in: "PING\rPUB secret 0\r\n\r\n", broken: true},
		"empty CONNECT":  {in: "CONNECT \r\n", broken: true},
		"ends in a body": {in: "PUB a 10\r\nab", out: ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, denied, err := relay(c.in)
			if out != c.out || denied != c.denied || (err != nil) != c.broken {
				t.Errorf("got %q, %d denied, error %v; want %q, %d, an error: %t", out, denied, err, c.out, c.denied, c.broken)
			}
		})
	}
}

// What a guard lets through is read in the same way by the next one, which refuses nothing of it.
func FuzzRelay(f *testing.F) {
	f.Add("CONNECT {}\r\nPING\r\nSUB a 1\r\nPUB a b 2\r\nhi\r\nHPUB a 2 4\r\nabhi\r\n")
	f.Add("PUB a 2\r\nhi\r\nPUB secret 0\r\n\r\n")
	f.Add("PUB\ta\t0\r\n\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		out, _, _ := relay(in)
		again, denied, err := relay(out)
		if again != out || denied != 0 || err != nil {
			t.Errorf("%q became %q, then %q, %d denied, error %v", in, out, again, denied, err)
		}
	})
}

// A reader is a client that reads nothing until it is released, and then all.
type reader struct {
	ends chan struct{} // closed by Close
	once sync.Once
}

func (r *reader) Read([]byte) (int, error) {
	<-r.ends
	return 0, io.EOF
}

func (r *reader) Write([]byte) (int, error) {
	<-r.ends
	return 0, io.ErrClosedPipe
}

func (r *reader) Close() error {
	r.once.Do(func() { close(r.ends) })
	return nil
}

// Attack: connections of a client subscribe to much and read nothing. The server's messages are read,
// so that it keeps none of them, and what the guards keep for the client is bounded for all of its
// connections together.
func TestUnreadMessagesAreBounded(t *testing.T) {
	const conns, limit = 8, 8 << 20
	message := "MSG a 1 65536\r\n" + strings.Repeat("x", 65536) + "\r\n"
	account := guard.NewAccount(limit)
	ended := make(chan error, conns)
	servers := make([]io.WriteCloser, conns)
	for i := range conns {
		in, server := io.Pipe()
		servers[i] = server
		go func() {
			g := &guard.Guard{Rules: open{}, Denied: func(error) []byte { return nil }, Account: account}
			ended <- g.Relay(&pipeEnd{in}, &reader{ends: make(chan struct{})})
		}()
	}
	refused := 0
	for i := 0; refused < conns; i++ {
		if i > 10*conns*limit/len(message) { // most of them are for connections that have ended
			t.Fatalf("%d connections are left after %d messages", conns-refused, i)
		}
		_, _ = io.WriteString(servers[i%conns], message) // of a connection that has ended nothing is read
		if held := account.Held(); held > limit {
			t.Fatalf("%v are held", held)
		}
		select {
		case err := <-ended:
			if refused++; outboard.KindOf(err) != outboard.Busy {
				t.Errorf("a connection ended with %v", err)
			}
		default:
		}
		if i >= limit/len(message) && refused == 0 {
			if err := <-ended; outboard.KindOf(err) != outboard.Busy {
				t.Errorf("a connection ended with %v", err)
			}
			refused++
		}
	}
	if held := account.Held(); held != 0 {
		t.Errorf("%v are held for connections that have ended", held)
	}
}

// A pipeEnd is a server that sends what is written to a pipe, and ignores what it gets.
type pipeEnd struct{ *io.PipeReader }

func (pipeEnd) Write(p []byte) (int, error) { return len(p), nil }

// partOf returns which part of a batch a message is: its header is ID PART, with "!" at the end of the
// last one's.
func partOf(m guard.Message) (b guard.Batch) {
	text, last := strings.CutSuffix(string(m.Header), "!")
	_, _ = fmt.Sscan(text, &b.ID, &b.Part)
	b.Last = last
	return b
}

// Attack: a client begins batches and does not end them, which keep others from theirs. The server gets
// a batch when all of its parts have arrived.
func TestBatchesArriveWhole(t *testing.T) {
	part := func(header, body string) string {
		return fmt.Sprintf("HPUB a r %d %d\r\n%s%s\r\n", len(header), len(header)+len(body), header, body)
	}
	one, two, three := part("b 1", "x"), part("b 2", "y"), part("b 3!", "z")
	for name, c := range map[string]struct {
		in, out string
		denied  int
	}{
		"begun":              {in: one + two + "PING\r\n", out: "PING\r\n"},
		"whole":              {in: one + two + "PING\r\n" + three, out: "PING\r\n" + one + two + three},
		"of one message":     {in: part("b 1!", "x"), out: part("b 1!", "x")},
		"two at a time":      {in: one + part("c 1", "v") + two + part("c 2!", "w") + three, out: part("c 1", "v") + part("c 2!", "w") + one + two + three},
		"repeated":           {in: one + two + one + two + three, out: one + two + three},
		"after it has ended": {in: one + two + three + three + "PING\r\n", out: one + two + three + "PING\r\n", denied: 1},
		"without a part":     {in: one + three + "PING\r\n", out: "PING\r\n", denied: 1},
		"no beginning":       {in: two + three + "PING\r\n", out: "PING\r\n", denied: 2},
		"refused":            {in: one + part("b 2", "secret") + three + "PING\r\n", out: "PING\r\n", denied: 2},
		"refused first":      {in: part("b 1", "secret") + two + three + "PING\r\n", out: "PING\r\n", denied: 2},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := &end{in: strings.NewReader("")}, &end{in: strings.NewReader(c.in)}
			denied := 0
			account := guard.NewAccount(1 << 20)
			g := &guard.Guard{Rules: open{}, Denied: func(error) []byte { denied++; return nil }, BatchOf: partOf, Account: account}
			err := g.Relay(server, client)
			if got := server.out.String(); got != c.out || denied != c.denied || err != nil {
				t.Errorf("got %q, %d denied, error %v; want %q, %d", got, denied, err, c.out, c.denied)
			}
			if held := account.Held(); held != 0 {
				t.Errorf("%v are held after the end", held)
			}
		})
	}
}

// Batches that do not end are bounded with all else that is held for a client.
func TestOpenBatchesAreBounded(t *testing.T) {
	var in strings.Builder
	for i := range 100 {
		header := fmt.Sprintf("b%d 1", i)
		fmt.Fprintf(&in, "HPUB a r %d %d\r\n%s%s\r\n", len(header), len(header)+32<<10, header, strings.Repeat("x", 32<<10))
	}
	server, client := &end{in: strings.NewReader("")}, &end{in: strings.NewReader(in.String())}
	var denied []error
	g := &guard.Guard{
		Rules: open{}, Denied: func(err error) []byte { denied = append(denied, err); return nil }, BatchOf: partOf,
		Account: guard.NewAccount(2 << 20),
	}
	if err := g.Relay(server, client); err != nil || server.out.Len() > 0 {
		t.Errorf("the server got %d bytes, error %v", server.out.Len(), err)
	}
	if len(denied) < 40 || outboard.KindOf(denied[0]) != outboard.Busy {
		t.Errorf("%d of 100 batches of 32 KiB were refused, the first with %v", len(denied), slices.Concat(denied, []error{nil})[0])
	}
}
