package state

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard/internal/pool/guard"
)

// tenantView is the part of the table that a tenant's process receives: its own apps and ticks, the
// names and tenants of all apps, since no two apps may share a name, and the descriptors of services,
// by which its workflows call them and which reflection returns to every program. Everything else
// arrives as the deletion of one key, so that a watcher misses no revision.
type tenantView struct{ tenant string }

const (
	// hiddenKey is the key of all entries that a tenant does not see.
	hiddenKey = "hidden"

	subjectHeader = "Nats-Subject"
)

// leaderAnswer is the beginning of the server's answer with a message from a stream's leader.
var leaderAnswer = []byte(`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response"`)

// deliver hides the data of other tenants in a message. Every read of the table answers with the
// subject of each entry in a header, or in the leader's answer: [permissions.readsTable] refuses
// other reads.
func (v tenantView) deliver(m *guard.Message) {
	if bytes.HasPrefix(m.Body, leaderAnswer) {
		m.Body = v.leaderAnswer(m.Body)
	}
	isChange := strings.HasPrefix(m.Subject, changesPrefix)
	if !isChange && !bytes.Contains(m.Header, []byte(keyPrefix)) {
		return
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	subject, isEntry := strings.CutPrefix(header.Get(subjectHeader), keyPrefix)
	if err == nil && !isEntry && !isChange {
		return // The prefix is in a header of an app's own.
	}
	if err == nil && isEntry && deletion(header.Get) && strings.HasPrefix(subject, "apps.") {
		return // The name of an app that was removed.
	}
	body, visible := v.entry(subject, m.Body)
	if err == nil && isEntry && visible {
		m.Body = body
		return
	}
	if m.Header, m.Body = hide(header), nil; isChange {
		m.Subject = changesPrefix + hiddenKey
	}
}

// hide returns the header of an entry without its key and content, but with its revision.
func hide(header nats.Header) []byte {
	hidden := nats.NewMsg(keyPrefix + hiddenKey)
	hidden.Header.Set(subjectHeader, keyPrefix+hiddenKey)
	hidden.Header.Set(opHeader, opDelete)
	for _, name := range []string{"Nats-Stream", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Last-Sequence", "Nats-Num-Pending"} {
		if value := header.Get(name); value != "" {
			hidden.Header.Set(name, value)
		}
	}
	var text bytes.Buffer
	text.WriteString("NATS/1.0\r\n")
	for name, values := range hidden.Header {
		text.WriteString(name + ": " + values[0] + "\r\n")
	}
	text.WriteString("\r\n")
	return text.Bytes()
}

// entry returns the part that the tenant sees of a value whose subject continues with words, and
// whether it sees the key at all.
func (v tenantView) entry(words string, value []byte) (seen []byte, visible bool) {
	part, rest, _ := strings.Cut(words, ".")
	switch part {
	case "apps":
		return v.app(value), true
	case "ticks":
		owner, _, _ := strings.Cut(rest, ".")
		own, ok := tokensOf(v.tenant)
		return value, ok && owner == own
	case "config":
		return value, rest == "pool"
	case "services":
		return value, true
	}
	return nil, false
}

// app returns an app's versions as they are if the app is the tenant's, and its name and tenant
// otherwise.
func (v tenantView) app(value []byte) []byte {
	var all struct {
		versioned
		Last int `json:"last"`
	}
	if json.Unmarshal(value, &all) != nil {
		return []byte(`{"versions":[]}`)
	}
	own := true
	for _, one := range all.Versions {
		own = own && one.App.Tenant == v.tenant
	}
	if own {
		return value
	}
	last := all.last()
	stub := map[string]any{"versions": []any{map[string]any{
		"number": last.Number, "app": map[string]string{"app": last.App.Name, "tenant": last.App.Tenant},
	}}}
	text, err := json.Marshal(stub)
	if err != nil {
		return nil
	}
	return text
}

// leaderAnswer returns the answer of a stream's leader as the tenant sees it.
func (v tenantView) leaderAnswer(body []byte) []byte {
	hidden := func() []byte {
		text, err := json.Marshal(map[string]any{"error": jetstream.APIError{
			Code: 404, ErrorCode: jetstream.JSErrCodeMessageNotFound, Description: "no message found",
		}})
		if err != nil {
			return nil
		}
		return text
	}
	var answer map[string]json.RawMessage
	var message struct {
		Subject string `json:"subject"`
		Data    []byte `json:"data"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return hidden()
	}
	if answer["message"] == nil {
		return body // an error
	}
	if json.Unmarshal(answer["message"], &message) != nil {
		return hidden()
	}
	words, isEntry := strings.CutPrefix(message.Subject, keyPrefix)
	if !isEntry {
		return body // The request was for a log or a bucket of the tenant.
	}
	seen, visible := v.entry(words, message.Data)
	if !visible {
		return hidden()
	}
	return replaceData(answer, seen)
}

// replaceData returns a leader's answer with other data.
func replaceData(answer map[string]json.RawMessage, data []byte) []byte {
	var message map[string]json.RawMessage
	if json.Unmarshal(answer["message"], &message) != nil {
		return nil
	}
	// The server uses standard encoding for bytes.
	message["data"] = json.RawMessage(`"` + base64.StdEncoding.EncodeToString(data) + `"`)
	inner, err := json.Marshal(message)
	if err != nil {
		return nil
	}
	answer["message"] = inner
	text, err := json.Marshal(answer)
	if err != nil {
		return nil
	}
	return text
}
