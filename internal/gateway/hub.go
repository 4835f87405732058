package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"time"
)

// hub holds the open WebSockets of one app on this node, and their rooms. No function that may
// block is called under its lock: subscriptions are ended after it is released.
type hub struct {
	app     string
	sockets *sockets

	partials partials

	mu       sync.Mutex
	byID     map[string]*socket
	rooms    map[string]*room
	stop     func() // ends the subscription for this node's sockets; nil: there is none
	closedBy error  // the reason that no more sockets are added; nil: they are
}

// room holds the members of a room on this node.
type room struct {
	members map[*socket]struct{}
	stop    func() // nil: no messages from other nodes
}

// publishLimit is how long a message to other nodes may take.
const publishLimit = 5 * time.Second

func newHub(app string, s *sockets) *hub {
	return &hub{
		app: app, sockets: s, byID: map[string]*socket{}, rooms: map[string]*room{},
		partials: partials{budget: s.gateway.opts.Buffers, byKey: map[partialKey]*partial{}},
	}
}

// add adds a socket, or ends it if the hub was closed meanwhile.
func (h *hub) add(s *socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closedBy != nil {
		s.end(h.closedBy)
		return
	}
	h.byID[s.id] = s
	if h.stop == nil {
		h.stop = h.subscribe(h.idSubject(h.sockets.node()), h.receiveForSocket)
	}
}

// remove removes a socket from the hub and its rooms.
func (h *hub) remove(s *socket) {
	for _, stop := range h.detach(s) {
		stop()
	}
}

func (h *hub) detach(s *socket) (stops []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byID, s.id)
	for name := range s.rooms {
		stops = appendStop(stops, h.leaveLocked(s, name))
	}
	if len(h.byID) == 0 {
		stops = appendStop(stops, h.stop)
		h.stop = nil
		h.partials.drop(nil)
	}
	return stops
}

func appendStop(stops []func(), stop func()) []func() {
	if stop == nil {
		return stops
	}
	return append(stops, stop)
}

// join adds a socket to a room. It returns false if the socket is closed or in too many rooms.
func (h *hub) join(s *socket, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[s.id] == nil || len(s.rooms) >= maxRooms {
		return false
	}
	r := h.rooms[name]
	if r == nil {
		r = &room{members: map[*socket]struct{}{}}
		r.stop = h.subscribe(h.roomSubject(name), func(m Message) { h.receiveForRoom(r, m) })
		h.rooms[name] = r
	}
	r.members[s] = struct{}{}
	s.rooms[name] = struct{}{}
	return true
}

func (h *hub) leave(s *socket, name string) {
	h.mu.Lock()
	stop := h.leaveLocked(s, name)
	h.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// leaveLocked removes a socket from a room. It returns the function that ends the room's
// subscription if the room is empty.
func (h *hub) leaveLocked(s *socket, name string) (stop func()) {
	r := h.rooms[name]
	if r == nil {
		return nil
	}
	delete(r.members, s)
	delete(s.rooms, name)
	if len(r.members) > 0 {
		return nil
	}
	delete(h.rooms, name)
	h.partials.drop(r)
	return r.stop
}

// subscribe receives messages of other nodes. Without the subscription the room reaches only this
// node's members.
func (h *hub) subscribe(subject string, f func(Message)) (stop func()) {
	bus := h.sockets.gateway.opts.Bus
	if bus == nil {
		return nil
	}
	stop, err := bus.Subscribe(subject, "", f)
	if err != nil {
		h.sockets.gateway.log.Warn("rooms do not receive messages of other nodes", "app", h.app, "error", err)
		return nil
	}
	return stop
}

// subject returns the subject of a room or a socket: PREFIX.APP.room.NAME and PREFIX.APP.id.NODE,
// with names in base64.
func (h *hub) subject(kind, name string) string {
	code := base64.RawURLEncoding
	return h.sockets.gateway.opts.Rooms + "." + code.EncodeToString([]byte(h.app)) + "." + kind + "." + code.EncodeToString([]byte(name))
}

func (h *hub) roomSubject(name string) string { return h.subject("room", name) }
func (h *hub) idSubject(node string) string   { return h.subject("id", node) }

// envelope encodes a message between nodes: the sending node or the receiving socket, a newline, a
// letter for its kind, and its bytes. The letter of a part of a message is a capital.
func envelope(name string, letter byte, data []byte) []byte {
	b := make([]byte, 0, len(name)+2+len(data))
	b = append(b, name...)
	b = append(b, '\n', letter)
	return append(b, data...)
}

func parseEnvelope(b []byte) (name string, letter byte, data []byte, ok bool) {
	head, rest, ok := bytes.Cut(b, []byte("\n"))
	if !ok || len(rest) == 0 {
		return "", 0, nil, false
	}
	return string(head), rest[0], rest[1:], true
}

// openEnvelope returns the message in an envelope for a room, or for sockets if r is nil. ok is false
// if parts of it are missing, and for this node's own messages to a room, which its members have
// already.
func (h *hub) openEnvelope(r *room, b []byte) (name string, m outgoing, ok bool) {
	name, letter, data, ok := parseEnvelope(b)
	if !ok || name == h.sockets.node() {
		return "", outgoing{}, false
	}
	switch letter {
	case 't', 'b':
		return name, outgoing{data: bytes.Clone(data), binary: letter == 'b'}, true
	case 'T', 'B':
		whole, complete := h.partials.add(r, name, data)
		return name, outgoing{data: whole, binary: letter == 'B'}, complete
	}
	return "", outgoing{}, false
}

// toRoom sends to all members of a room: on this node directly, on others by the bus.
func (h *hub) toRoom(ctx context.Context, name string, m outgoing) error {
	h.mu.Lock()
	if r := h.rooms[name]; r != nil {
		r.broadcast(h.withCharge(m))
	}
	h.mu.Unlock()
	return h.publishMessage(ctx, h.roomSubject(name), h.sockets.node(), m)
}

// toID sends to one socket.
func (h *hub) toID(ctx context.Context, id string, m outgoing) error {
	node := id[:max(0, strings.LastIndexByte(id, '.'))]
	if node == h.sockets.node() {
		h.deliverLocal(id, m)
		return nil
	}
	return h.publishMessage(ctx, h.idSubject(node), id, m)
}

func (h *hub) publish(ctx context.Context, subject string, data []byte) error {
	bus := h.sockets.gateway.opts.Bus
	if bus == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	return bus.Publish(ctx, subject, data)
}

func (r *room) broadcast(m outgoing) {
	for s := range r.members {
		s.send(m)
	}
}

func (h *hub) deliverLocal(id string, m outgoing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.byID[id]; s != nil {
		s.send(h.withCharge(m))
	}
}

// receiveForRoom receives a message of another node.
func (h *hub) receiveForRoom(r *room, message Message) {
	_, m, ok := h.openEnvelope(r, message.Data)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r.broadcast(h.withCharge(m))
}

func (h *hub) receiveForSocket(message Message) {
	if id, m, ok := h.openEnvelope(nil, message.Data); ok {
		h.deliverLocal(id, m)
	}
}

// closeAll ends the app's sockets, including later ones.
func (h *hub) closeAll(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closedBy = why
	for _, s := range h.byID {
		s.end(why)
	}
}
