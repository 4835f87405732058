package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	replaceTick = time.Second
	// isolatedAfter is how long a voter has no route to other voters before it asks whether it is
	// still a voter.
	isolatedAfter = 5 * time.Second
	// membershipLimit bounds the query for the voters before a server starts.
	membershipLimit = 3 * time.Second
	// jsServerRemove is the subject to remove a server from the metadata group. Its streams get
	// replicas on another server.
	jsServerRemove = "$JS.API.SERVER.REMOVE"
)

// A replacer makes another node keep the copy of a voter that is dead or was removed. The node
// whose server leads the metadata group acts:
//
//  1. It names another voter in place of the absent one (config/voters). The new one starts its
//     server, joins the metadata group, and says so in its record.
//  2. It removes the servers from the metadata group that belong to no voter. Each stream that
//     had a copy there gets one on the new voter's server.
//
// Each step follows from the records and from the groups' members alone, so that another leader
// continues where its predecessor has stopped. A majority of the copies stays the same all the
// time.
type replacer struct {
	s       *State
	members *members
	after   time.Duration

	absent   map[string]time.Time // voters, since when they are absent
	isolated time.Time            // since when this voter has no routes
}

// startReplacer runs a replacer until the state ends.
func startReplacer(s *State) {
	ctx, cancel := context.WithCancel(context.Background())
	s.running.Go(func() {
		<-s.done
		cancel()
	})
	r := &replacer{s: s, members: s.server.members, after: s.server.opts.ReplaceAfter, absent: make(map[string]time.Time)}
	s.running.Go(func() { r.run(ctx) })
}

// run acts until ctx ends.
func (r *replacer) run(ctx context.Context) {
	for sleep(ctx, replaceTick) == nil {
		if err := r.step(ctx, time.Now()); err != nil && ctx.Err() == nil {
			r.s.log.Warn("replace a copy of the pool's state: trying again", "error", err)
		}
	}
}

func (r *replacer) step(ctx context.Context, now time.Time) error {
	srv, d := r.s.server.current(), r.s.server.role.get()
	voters, all, ready := r.members.view()
	if srv == nil || d.Mode != voter || !d.Ready {
		return nil
	}
	if !r.reachesOthers(srv, now) {
		r.s.server.dropGuests()
		return r.askMembership(ctx)
	}
	r.s.server.isolated.Store(false)
	meta := metaPeers(srv)
	if !ready || !srv.JetStreamIsLeader() || meta == nil {
		clear(r.absent)
		return nil
	}
	if lost := r.replaceable(voters, all, meta, now); lost != "" {
		return r.chooseOther(ctx, lost)
	}
	return r.removeServers(ctx, voters, meta)
}

// metaPeers returns the servers of the metadata group by name, nil where they are not known.
func metaPeers(srv *natsserver.Server) map[string]*natsserver.PeerInfo {
	info, err := srv.Jsz(&natsserver.JSzOptions{})
	if err != nil || info.Meta == nil {
		return nil
	}
	// Active is how long ago a server answered.
	self := &natsserver.PeerInfo{Name: srv.Name(), Current: true, Active: time.Nanosecond}
	peers := map[string]*natsserver.PeerInfo{srv.Name(): self}
	for _, p := range info.Meta.Replicas {
		peers[p.Name] = p
	}
	return peers
}

// replaceable returns a voter that was removed from the pool, or has been absent for long
// enough, "" for none.
func (r *replacer) replaceable(voters, all []member, meta map[string]*natsserver.PeerInfo, now time.Time) string {
	lost := ""
	for _, v := range voters {
		p := meta[v.Name]
		switch since, known := r.absent[v.Name]; {
		case !slices.ContainsFunc(all, func(m member) bool { return m.Name == v.Name }):
			lost = v.Name
		case p != nil && !isAbsent(p):
			delete(r.absent, v.Name)
		case !known:
			r.absent[v.Name] = now
		case r.after > 0 && now.Sub(since) >= r.after:
			lost = v.Name
		}
	}
	return lost
}

// isAbsent reports whether a voter does not answer the leader of the metadata group. Servers consider
// one that was killed, or that the network has cut off, offline only after 150 to 240 s. Active is
// zero if the voter has not answered since the leader's election.
func isAbsent(p *natsserver.PeerInfo) bool {
	return p.Offline || p.Active == 0 || p.Active > absentAfter
}

// chooseOther names another voter in place of a lost one, as soon as there is a node for it.
func (r *replacer) chooseOther(ctx context.Context, lost string) error {
	entry, err := r.s.GetLatest(ctx, votersKey)
	if err != nil {
		return err
	}
	var voters []member
	if err := json.Unmarshal(entry.Value, &voters); err != nil {
		return err
	}
	i := slices.IndexFunc(voters, func(m member) bool { return m.Name == lost })
	other, ok := r.members.candidate(voters)
	if i < 0 || !ok {
		return nil
	}
	// The list is written before the copy is gone: it alone tells that the node could read
	// everything.
	if err := r.s.addFormerKeeper(ctx, lost); err != nil {
		return err
	}
	voters[i] = other
	text, err := json.Marshal(voters)
	if err != nil {
		return err
	}
	if _, err := r.s.Update(ctx, votersKey, text, entry.Revision, 0); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	delete(r.absent, lost)
	r.s.log.Warn("a node that keeps a copy of the pool's state is gone: another one keeps it now", "gone", lost, "instead", other.Name)
	return nil
}

// addFormerKeeper records that a node kept a copy once.
func (t table) addFormerKeeper(ctx context.Context, name string) error {
	entry, err := t.GetLatest(ctx, formerKeepersKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	var former []string
	if err == nil {
		if err := json.Unmarshal(entry.Value, &former); err != nil {
			return err
		}
	}
	if slices.Contains(former, name) {
		return nil
	}
	text, err := json.Marshal(append(former, name))
	if err != nil {
		return err
	}
	_, err = t.Update(ctx, formerKeepersKey, text, entry.Revision, 0)
	return err
}

// removeServers removes the servers of nodes that are no voters from the metadata group, once
// all voters are in it.
func (r *replacer) removeServers(ctx context.Context, voters []member, meta map[string]*natsserver.PeerInfo) error {
	for _, v := range voters {
		if p := meta[v.Name]; p == nil || p.Offline || !p.Current {
			return nil
		}
	}
	for name, p := range meta {
		if slices.ContainsFunc(voters, func(m member) bool { return m.Name == name }) || p.Peer == "" {
			continue
		}
		if err := r.s.server.removeServer(ctx, p.Peer); err != nil {
			return fmt.Errorf("remove the server of node %s: %w", name, err)
		}
		r.s.log.Info("the server of a node that keeps no copy of the pool's state is out of the cluster", "gone", name)
	}
	return nil
}

// removeServer removes a server from the metadata group.
func (e *embedded) removeServer(ctx context.Context, peer string) error {
	e.mu.Lock()
	report := e.report
	e.mu.Unlock()
	if report == nil {
		return nil
	}
	text, err := json.Marshal(natsserver.JSApiMetaServerRemoveRequest{Peer: peer})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	m, err := report.sys.RequestWithContext(ctx, jsServerRemove, text)
	if err != nil {
		return err
	}
	var answer natsserver.JSApiMetaServerRemoveResponse
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// reachesOthers reports whether this voter has had a route to another one lately.
func (r *replacer) reachesOthers(srv *natsserver.Server, now time.Time) bool {
	if len(routedServers(srv)) > 0 {
		r.isolated = time.Time{}
		return true
	}
	if r.isolated.IsZero() {
		r.isolated = now
	}
	return now.Sub(r.isolated) < isolatedAfter
}

// askMembership asks other nodes whether this node is still a voter, and drops its copy if another
// node was named while this one was away.
func (r *replacer) askMembership(ctx context.Context) error {
	if !r.s.server.wasReplaced(ctx) {
		return nil
	}
	return demoteRunning(ctx, r.s)
}

// demoteRunning makes a node that runs a voter's server a guest.
func demoteRunning(ctx context.Context, s *State) error {
	if !s.server.beginMoving() {
		return nil
	}
	s.server.stop()
	err := s.server.demote()
	return errors.Join(err, s.server.start(), s.server.admitAll(s.nc), s.register(ctx, false))
}

// wasReplaced reports whether the table of the other nodes names voters, and not this one. It
// reports false where no node answers: then this voter waits for the others.
func (e *embedded) wasReplaced(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, membershipLimit)
	defer cancel()
	t := newTable(e.log, e.opts.Name)
	dial := dialled(func() (net.Conn, error) { return e.dialPeer(ctx, e.role.get().Peers) })
	if err := t.connect(nats.InProcessServer(dial), nats.NoReconnect()); err != nil {
		return false
	}
	defer t.nc.Close()
	var voters []member
	err := t.getJSON(ctx, votersKey, &voters)
	return err == nil && len(voters) > 0 && !slices.Contains(names(voters), e.opts.Name)
}

// demote makes a voter a guest, and deletes its copy.
func (e *embedded) demote() error {
	e.log.Warn("another node keeps this node's copy of the pool's state: this one was away for too long")
	if err := e.role.change(func(d *roleData) { d.Mode, d.Ready, d.Routes = guest, false, nil }); err != nil {
		return err
	}
	for _, name := range []string{natsserver.JetStreamStoreDir, founderDir, exportFile} {
		if err := os.RemoveAll(filepath.Join(e.opts.Dir, name)); err != nil {
			return fmt.Errorf("delete this node's copy of the pool's state: %w", err)
		}
	}
	return nil
}

// candidate returns the member that joined first among the present members that are no voters.
func (m *members) candidate(voters []member) (member, bool) {
	_, all, _ := m.view()
	for _, one := range all {
		m.mu.Lock()
		present := m.present[one.Name]
		m.mu.Unlock()
		if present && !slices.Contains(names(voters), one.Name) {
			return one, true
		}
	}
	return member{}, false
}

// isFenced reports whether a node kept a copy that another node keeps now: its server takes part in
// no cluster, whatever its own role says.
func (m *members) isFenced(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.former, name) && !slices.Contains(names(m.voters), name)
}
