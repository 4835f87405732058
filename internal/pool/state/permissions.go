package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

const (
	inboxRoot = "_INBOX"
	// authorityLog is the log that only nodes that keep a copy of the state may read.
	authorityLog = "authority"
	// requestsPrefix precedes the name of a node in the subject of its requests to the nodes
	// that keep the state.
	requestsPrefix = "outboard.requests."
)

// permissions are the operations on the state that a node without a copy, and every helper process
// of a node, may perform. The zero value of tenant means all tenants: a node runs the apps of each
// of them.
//
//	table     reads all of it; writes the keys that name the node as their owner
//	logs      reads and appends to the logs of the tenants; not to the authority's
//	buckets   reads, commits and watches; creates them in their proper configuration
//	subjects  the apps' own; answers to requests that it received; a tenant's process hears neither
//	          answers, rooms and events of other tenants, nor the node's answers, and takes no
//	          messages from their queue groups
//
// It deletes no stream, changes none, and lets the server publish nothing on its behalf but answers
// to its own inbox.
type permissions struct {
	node   string
	tenant string
	// keeper says that the client is a helper process of a node that keeps a copy, whose node
	// may change the apps of all nodes.
	keeper bool
	// mayVersion decides about a new version of an object whose versions the table keeps: an app, a
	// model.
	mayVersion func(key string, m guard.Message) error
	// mayTrim decides about a write of the node of a device to the grants of another holder.
	mayTrim func(m guard.Message) error
	// hasApps returns an error unless a tenant, as a word of a subject, has apps. It may be nil.
	hasApps func(tenant string) error
	// stores accounts for the data of tenants; nil disables the accounting.
	stores *stores
	// tables accounts for the keys of nodes in the table; nil disables the accounting.
	tables *nodeTables
}

var _ guard.Rules = permissions{}

// client names the client, for errors and for its account.
func (p permissions) client() string {
	if p.tenant != "" {
		return "tenant " + p.tenant + " on node " + p.node
	}
	return "node " + p.node
}

func (p permissions) refuse(what, subject string) error {
	return outboard.Errorf(outboard.Denied, "the pool's state",
		"%s may not %s %q: it keeps no copy of the state, and it is not its owner", p.client(), what, subject)
}

// Subscribe implements guard.Rules.
func (p permissions) Subscribe(subject, queue string) (costly bool, err error) {
	words := strings.Split(subject, ".")
	switch {
	case !p.ownsQueue(queue):
		return false, p.refuse("join the queue group", queue)
	case words[0] == inboxRoot && strings.HasPrefix(subject, inboxOf(p.node, p.tenant)) && words[len(words)-1] != "":
		return false, nil
	case subject == changesPrefix+">":
		return true, nil // A tenant that subscribed to single keys would learn which keys exist.
	case subject == "" || reserved(words[0]) || !p.ownsSubject(words):
		return false, p.refuse("subscribe to", subject)
	}
	return false, nil
}

// inboxOf returns the prefix of the subjects of answers to a node, or to a process of a tenant on it.
// A tenant's prefix is below its node's, so the node's own permissions allow what it relays.
func inboxOf(node, tenant string) string {
	prefix := inboxRoot + "." + node + "."
	if tenant == "" {
		return prefix
	}
	token, _ := tokensOf(tenant) // a tenant is a label
	return prefix + "tenant-" + token + "."
}

// ownsSubject reports whether an app's subject is not another tenant's: rooms and events have the
// tenant's name in the second place.
func (p permissions) ownsSubject(words []string) bool {
	if p.tenant == "" || words[0] != "rooms" && words[0] != "events" {
		return true
	}
	return len(words) > 2 && p.ownsTenant(words[1])
}

// queuePrefix begins the names of the queue groups of apps' triggers; the tenant's name follows.
const queuePrefix = "outboard/"

// ownsQueue reports whether a queue group is not that of another tenant's trigger.
func (p permissions) ownsQueue(queue string) bool {
	rest, isTrigger := strings.CutPrefix(queue, queuePrefix)
	return p.tenant == "" || !isTrigger || strings.HasPrefix(rest, p.tenant+"/")
}

// Publish implements guard.Rules.
func (p permissions) Publish(m guard.Message) error {
	if m.Reply != "" && !p.isInbox(m.Reply) {
		return p.refuse("ask for an answer to", m.Reply)
	}
	words := strings.Split(m.Subject, ".")
	for _, word := range words {
		if word == "" || word == "*" || word == ">" {
			return p.refuse("publish on", m.Subject)
		}
	}
	switch {
	case words[0] == inboxRoot:
		return nil // The server allows answers to requests that it has delivered.
	case words[0] == "$KV" && len(words) > 2:
		return p.publishKey(words, m)
	case words[0] == "$JS" && len(words) > 3 && words[1] == "API":
		return p.request(words[2:], m)
	case words[0] == "outboard" && len(words) > 2:
		return p.publishOwn(words, m)
	case reserved(words[0]) || !p.ownsSubject(words):
		return p.refuse("publish on", m.Subject)
	}
	return nil
}

// isInbox reports whether a subject is below the inbox of this client.
func (p permissions) isInbox(subject string) bool {
	rest, ok := strings.CutPrefix(subject, inboxOf(p.node, p.tenant))
	return ok && rest != "" && !strings.ContainsAny(rest, "*>$") // "$FI" at its end begins a batch of another kind
}

// publishKey decides about writing a key of the table or of a bucket.
func (p permissions) publishKey(words []string, m guard.Message) error {
	if words[1] != "outboard" {
		if !p.isBucket("KV_" + words[1]) {
			return p.refuse("write", m.Subject)
		}
		if err := p.checkHeader(m, ""); err != nil {
			return err
		}
		return p.chargeBucket(words[1], m, false)
	}
	if !isSpelled(words[2:]) {
		return p.refuse("write a key that is spelled", m.Subject)
	}
	if err := p.mayWrite(words[2:], m); err != nil {
		return err
	}
	if err := p.checkHeader(m, p.node+"."); err != nil {
		return err
	}
	if err := p.chargeNode(words[2:], m); err != nil {
		return err
	}
	return p.chargeTable(words[2:], m)
}

// mayWrite decides about writing a key of the table: one of this client, or a value of another one by
// what the table has.
func (p permissions) mayWrite(words []string, m guard.Message) error {
	isNode := p.tenant == ""
	switch {
	case p.ownsKey(words):
		return nil
	case p.mayVersion != nil && len(words) == 2 && (words[0] == "apps" || words[0] == "models" && isNode):
		return p.mayVersion(keyOf(strings.Join(words, ".")), m)
	case p.mayTrim != nil && isNode && isGrant(words) && words[1] == p.node:
		return p.mayTrim(m)
	}
	return p.refuse("write", m.Subject)
}

// isGrant reports whether a key has the grants of a device to a holder: leases/NODE/API/NUMBER/HOLDER.
func isGrant(words []string) bool { return words[0] == "leases" && len(words) == 5 }

// isSpelled reports whether the words of a subject spell a key as tokensOf does. Readers would take a
// key with another spelling for that key, of which the server and ownsKey know nothing.
func isSpelled(words []string) bool {
	text := strings.Join(words, ".")
	tokens, ok := tokensOf(keyOf(text))
	return ok && tokens == text
}

// ownsKey reports whether a key of the table names this node, or tenant, as its owner. Its cases
// are all keys that a node without a copy of the table writes.
func (p permissions) ownsKey(words []string) bool {
	part, rest := words[0], words[1:]
	switch {
	case part == "ticks" && len(rest) == 2:
		return p.ownsTenant(rest[0])
	case p.tenant != "":
		return false
	case isGrant(words):
		return rest[3] == p.node // the holder
	case part == "config" && len(rest) == 2:
		return rest[0] == "members" && rest[1] == p.node
	case part == "nodes" || part == "endpoints" || part == "added-endpoints" || part == "modelreports" || part == "network":
		return len(rest) == 1 && rest[0] == p.node
	case part == "model-usage":
		return len(rest) == 2 && rest[1] == p.node
	case part == "queue" || part == "services" || part == "model-keys" || part == "jobs" || part == "datasets":
		return len(rest) == 2 && rest[0] == p.node
	}
	return false
}

// ownsTenant reports whether a word of a subject is the tenant's name. A name has one spelling in
// subjects, under which all its data is found and counted.
func (p permissions) ownsTenant(word string) bool {
	name := cmp.Or(p.tenant, keyOf(word))
	token, ok := tokensOf(name)
	return ok && token == word
}

// publishOwn decides about the subjects of Outboard itself: logs, commits and requests.
func (p permissions) publishOwn(words []string, m guard.Message) error {
	switch kind, rest := words[1], words[2:]; {
	case kind == "log" && len(rest) > 1 && rest[0] != authorityLog && p.ownsTenant(rest[1]) && isSpelled(rest):
		if err := p.checkHeader(m, ""); err != nil {
			return err
		}
		return p.chargeLog(words, m)
	case kind == "commit" && len(rest) == 2 && p.isBucket("KV_"+rest[0]):
		if err := p.checkHeader(m, ""); err != nil {
			return err
		}
		return p.chargeBucket(rest[0], m, true)
	case kind == "requests" && len(rest) == 1 && rest[0] == p.node && p.tenant == "":
		return nil
	}
	return p.refuse("publish on", m.Subject)
}

// storedHeaders are the headers with which a client may store a message: those by which the server
// stores it, and those of this package. Other headers of the server erase stored messages, and readers
// take others for the server's own, such as the status that ends a page of the table.
var storedHeaders = []string{
	jetstream.MsgIDHeader, jetstream.ExpectedLastSeqHeader, jetstream.ExpectedLastSubjSeqHeader,
	jetstream.ExpectedLastSubjSeqSubjHeader, ttlHeader, batchIDHeader, batchSeqHeader, batchCommitHeader,
	opHeader, expiresHeader, sizesHeader,
}

// checkHeader refuses headers by which a message has other effects than to be stored, and ids
// that do not begin with idPrefix: a message with the id of another one is not stored. Clients and the
// server must agree on the lines: clients also end one without a carriage return.
func (p permissions) checkHeader(m guard.Message, idPrefix string) error {
	if m.Header == nil {
		return nil
	}
	text, begins := strings.CutPrefix(string(m.Header), "NATS/1.0\r\n")
	text, ends := strings.CutSuffix(text, "\r\n")
	if !begins || !ends || text != "" && !strings.HasSuffix(text, "\r\n") || strings.ContainsFunc(strings.ReplaceAll(text, "\r\n", ""), isControl) {
		return p.refuse("write with a malformed header", m.Subject)
	}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !slices.Contains(storedHeaders, name) {
			return p.refuse("write with the header "+strings.TrimSpace(name), m.Subject)
		}
		if name == jetstream.MsgIDHeader && !strings.HasPrefix(strings.TrimLeft(value, " "), idPrefix) {
			return p.refuse("write with the id of another node", m.Subject)
		}
	}
	if _, ok := parseBatch(m.Header); !ok {
		return p.refuse("write a malformed part of a batch", m.Subject)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// isBucket reports whether a stream is a bucket of a tenant of this client.
func (p permissions) isBucket(stream string) bool {
	name, ok := strings.CutPrefix(stream, streamName+"-")
	return ok && isWord(name) && (p.tenant == "" || tenantOfBucket(stream) == p.tenant)
}

// isLog reports whether a stream is a log of the tenants.
func (p permissions) isLog(stream string) bool {
	name, ok := strings.CutPrefix(stream, logStreamPrefix)
	return ok && isWord(name) && name != authorityLog
}

// request decides about a request to the JetStream API, whose last part names the stream.
func (p permissions) request(words []string, m guard.Message) error {
	verb, args := strings.Join(words[:2], "."), words[2:]
	if verb == "STREAM.MSG" && len(args) == 2 && args[0] == "GET" {
		verb, args = "DIRECT.GET", args[1:]
	}
	if verb == "CONSUMER.MSG" && len(args) == 3 && args[0] == "NEXT" {
		verb, args = "CONSUMER.NEXT", args[1:]
	}
	if len(args) == 0 {
		return p.refuse("call", m.Subject)
	}
	ok := false
	switch stream := args[0]; verb {
	case "DIRECT.GET", "STREAM.INFO":
		whole := len(args) == 1
		// A subject after the stream is the subject of the last message to read.
		ok = stream == streamName && p.readsTable(m.Body) || p.isBucket(stream) || whole && p.isLog(stream) && p.readsOwn(stream, verb, m.Body)
		ok = ok && (whole || verb == "DIRECT.GET")
	case "STREAM.CREATE":
		ok = len(args) == 1 && (p.isBucket(stream) || p.isLog(stream)) && isProper(stream, m.Body)
	case "STREAM.PURGE":
		ok = len(args) == 1 && (p.isBucket(stream) || p.isLog(stream)) && p.purgesOne(stream, m.Body)
	case "CONSUMER.CREATE":
		ok = len(args) >= 2 && p.isBucket(stream) && pulls(stream, m.Body)
	case "CONSUMER.NEXT", "CONSUMER.DELETE", "CONSUMER.INFO":
		ok = len(args) == 2 && p.isBucket(stream)
	}
	if !ok {
		return p.refuse("call", m.Subject)
	}
	if verb == "STREAM.CREATE" {
		if err := p.mayCreate(args[0]); err != nil {
			return err
		}
	}
	if verb == "STREAM.CREATE" || verb == "STREAM.INFO" && args[0] != streamName {
		return p.use(args[0])
	}
	return nil
}

// tenantLogs are the logs of the tenants, all of which share them.
var tenantLogs = []string{"executions", "events"}

// mayCreate decides about a new stream. The processes of tenants create buckets; a node that keeps no
// copy relays that, and creates none for a tenant that has no app.
func (p permissions) mayCreate(stream string) error {
	if name, isLog := strings.CutPrefix(stream, logStreamPrefix); isLog {
		if !slices.Contains(tenantLogs, name) {
			return p.refuse("create the log", name)
		}
		return nil
	}
	if p.hasApps == nil || p.tenant != "" || p.keeper {
		return nil
	}
	return p.hasApps(tenantOfBucket(stream))
}

// logPrefix returns the prefix of the subjects of a log that this client may read.
func (p permissions) logPrefix(stream string) string {
	prefix := logSubjectPrefix + strings.TrimPrefix(stream, logStreamPrefix) + "."
	if tokens, ok := tokensOf(p.tenant); ok {
		prefix += tokens + "."
	}
	return prefix
}

// readsOwn reports whether a read of a log is restricted to the tenant's part of it.
func (p permissions) readsOwn(stream, verb string, body []byte) bool {
	if p.tenant == "" {
		return true
	}
	var q struct {
		Last   string `json:"last_by_subj"`
		Next   string `json:"next_by_subj"`
		Filter string `json:"subjects_filter"`
	}
	// Keys that differ in case are the same to the server.
	if len(body) > 0 && decodeStrictly(body, &q, "last_by_subj", "next_by_subj", "subjects_filter", "seq", "batch", "max_bytes", "offset", "no_headers") != nil {
		return false
	}
	named := false
	for _, subject := range []string{q.Last, q.Next, q.Filter} {
		if subject == "" {
			continue
		}
		if named = true; !strings.HasPrefix(subject, p.logPrefix(stream)) {
			return false
		}
	}
	return named || verb == "STREAM.INFO"
}

// readsTable reports whether the answer to a read of the table has what [tenantView] needs: each
// entry with its header. A list of the keys would name keys of other tenants.
func (p permissions) readsTable(body []byte) bool {
	var q struct{}
	return p.tenant == "" || len(body) == 0 || decodeStrictly(body, &q, "last_by_subj", "next_by_subj", "seq", "batch", "max_bytes", "offset") == nil
}

// purgesOne reports whether a purge is of one subject.
func (p permissions) purgesOne(stream string, body []byte) bool {
	var q struct {
		Filter string `json:"filter"`
	}
	if decodeStrictly(body, &q, "filter", "seq") != nil || q.Filter == "" || strings.ContainsAny(q.Filter, "*>") {
		return false
	}
	return p.isBucket(stream) || strings.HasPrefix(q.Filter, p.logPrefix(stream))
}

// pulls reports whether a consumer delivers only on request: a push consumer would publish stored
// messages on any subject, with the rights of the server.
func pulls(stream string, body []byte) bool {
	var q struct {
		Stream string          `json:"stream_name"`
		Config json.RawMessage `json:"config"`
	}
	if decodeStrictly(body, &q, "stream_name", "config", "action") != nil || q.Stream != stream {
		return false
	}
	var config struct {
		Inactive time.Duration `json:"inactive_threshold"`
		Filters  []string      `json:"filter_subjects"`
	}
	return len(body) <= maxConsumerConfig && decodeStrictly(q.Config, &config, consumerKeys...) == nil &&
		config.Inactive > 0 && config.Inactive <= maxInactive && len(config.Filters) <= maxFilters
}

// Bounds of a request for a consumer. The server compares each filter with all others: 20,000 of them
// took it a minute.
const (
	maxConsumerConfig = 16 << 10
	maxFilters        = 16
)

// maxInactive bounds how long a consumer may exist without requests.
const maxInactive = 10 * time.Minute

// consumerKeys are the keys in the configuration of an ordered consumer.
var consumerKeys = []string{
	"name", "deliver_policy", "opt_start_seq", "ack_policy", "replay_policy", "filter_subject", "filter_subjects",
	"inactive_threshold", "num_replicas", "mem_storage", "max_deliver", "metadata",
}

// isProper reports whether the configuration of a new stream is the one that this package gives it:
// any other could copy any other stream or capture any subject.
func isProper(stream string, body []byte) bool {
	var requested jetstream.StreamConfig
	if json.Unmarshal(body, &requested) != nil || requested.Name != stream {
		return false
	}
	var want jetstream.StreamConfig
	if name, ok := strings.CutPrefix(stream, logStreamPrefix); ok {
		want = newLog(nil, name).config(LogOptions{MaxAge: requested.MaxAge})
	} else {
		want = newKV(nil, strings.TrimPrefix(stream, "KV_")).config()
	}
	if want.Replicas = requested.Replicas; requested.Replicas != 1 && requested.Replicas != Copies {
		return false
	}
	text, err := json.Marshal(want)
	if err != nil {
		return false
	}
	var got, proper map[string]any
	return json.Unmarshal(body, &got) == nil && json.Unmarshal(text, &proper) == nil && equalFolded(got, proper)
}

// equalFolded reports whether two objects are the same, and have no two keys that differ only
// in case.
func equalFolded(got, want map[string]any) bool {
	x, errX := json.Marshal(got)
	y, errY := json.Marshal(want)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// decodeStrictly decodes an object that may have no other keys than these, each once.
func decodeStrictly(body []byte, into any, keys ...string) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("want an object: %w", errOrToken(err))
	}
	for d.More() {
		key, err := d.Token()
		i := slices.Index(keys, fmt.Sprint(key))
		if err != nil || i < 0 {
			return fmt.Errorf("key %v: %w", key, errOrToken(err))
		}
		keys = slices.Delete(slices.Clone(keys), i, i+1)
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return err
		}
	}
	return json.Unmarshal(body, into)
}

func errOrToken(err error) error {
	if err == nil {
		err = ErrNotFound
	}
	return err
}
