// Command chat implements the rooms of the chat example. It is called for each event of a
// WebSocket: "open", "message" and "close". Its response lists the messages to send, and the
// rooms that the socket joins or leaves.
package main

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() {
	guest.Handle(handle)
	guest.Warm(func() { _, _ = handle(nil) }) // encoding/json analyses the types
}

func main() {}

const (
	longest  = 500 // letters of a line
	recalled = 20  // lines that newcomers see
	attempts = 10  // to append a line while other calls append theirs
)

// answer lists the actions of the gateway.
type answer struct {
	Send  []message `json:"send,omitempty"`
	Join  []string  `json:"join,omitempty"`
	Close bool      `json:"close,omitempty"`
}

type message struct {
	To   string `json:"to"` // "room:NAME", "id:ID" or "self"
	Text string `json:"text"`
}

func handle(text []byte) ([]byte, error) {
	event, _ := guest.Meta("ws.event")
	room, _ := guest.Meta("room")
	name := visitor()
	if name == "" {
		return json.Marshal(answer{Send: []message{{"self", "who are you? Add ?name=YOU to the address"}}, Close: true})
	}
	switch event {
	case "open":
		return enter(room, name)
	case "message":
		return say(room, name+": "+clean(string(text)))
	case "close":
		return say(room, "-- "+name+" left")
	}
	return nil, errors.New("event " + event + " is unknown")
}

// visitor returns the name in the query.
func visitor() string {
	query, _ := guest.Meta("query")
	values, _ := url.ParseQuery(query)
	return strings.TrimSpace(clean(values.Get("name")))
}

func clean(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if letters := []rune(s); len(letters) > longest {
		s = string(letters[:longest]) + " ..."
	}
	return s
}

// enter sends the recent lines, and joins the room.
func enter(room, name string) ([]byte, error) {
	lines, _, err := recall(room)
	if err != nil {
		return nil, err
	}
	a := answer{Join: []string{room}}
	if len(lines) > 0 {
		a.Send = append(a.Send, message{"self", strings.Join(lines, "\n")})
	}
	line := "-- " + name + " came"
	a.Send = append(a.Send, message{"room:" + room, line})
	if err := note(room, line); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// say sends a line to the room. A line that can't be stored is not sent, and its sender gets
// an error.
func say(room, line string) ([]byte, error) {
	if err := note(room, line); err != nil {
		return json.Marshal(answer{Send: []message{{"self", "!! nobody heard that: " + err.Error()}}})
	}
	return json.Marshal(answer{Send: []message{{"room:" + room, line}}})
}

var history = guest.Bucket("history")

// recall returns the last lines of a room, and their revision.
func recall(room string) (lines []string, revision int64, err error) {
	text, revision, err := history.Get(room)
	if err != nil || revision == 0 {
		return nil, 0, err
	}
	err = json.Unmarshal(text, &lines)
	return lines, revision, err
}

// note appends a line to the stored ones by compare-and-swap, and retries after a conflict.
func note(room, line string) error {
	for range attempts {
		lines, revision, err := recall(room)
		if err != nil {
			return err
		}
		lines = append(lines, line)
		text, err := json.Marshal(lines[max(0, len(lines)-recalled):])
		if err != nil {
			return err
		}
		same := guest.At(room, revision)
		if revision == 0 {
			same = guest.Missing(room)
		}
		err = history.Txn(same, guest.Put(room, text))
		if _, changed := errors.AsType[*guest.ConditionError](err); !changed {
			return err
		}
	}
	return errors.New("the room is too busy to keep what is said")
}
