package guard_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

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

func (open) Subscribe(subject string) error {
	if strings.HasPrefix(subject, "secret") {
		return errSecret
	}
	return nil
}

func relay(in string) (out string, denied int, err error) {
	var server bytes.Buffer
	g := &guard.Guard{Rules: open{}, Token: "token", Denied: func(string, error) { denied++ }}
	err = g.Relay(&server, strings.NewReader(in))
	return server.String(), denied, err
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
