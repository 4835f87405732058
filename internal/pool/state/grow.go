package state

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

const (
	// Copies is how many copies of the table a pool of three nodes or more has.
	Copies = 3

	growRetry = 500 * time.Millisecond
)

// grower takes the pool from one copy of the table to three.
//
// The founder chooses: itself, first, and the two members that joined first among those connected
// to it. The two start servers in a cluster and continue to send requests to the founder; when they
// have elected a leader and the founder can reach both, it moves the table (see move.go).
type grower struct {
	s       *State
	members *members
}

// run acts on the members' records until ctx ends.
func (g *grower) run(ctx context.Context) {
	for again := false; ; {
		var timer <-chan time.Time
		if again {
			timer = time.After(growRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-g.members.changed:
		case <-timer:
		}
		done, err := g.step(ctx)
		g.s.server.growthFailure.Store(&err)
		if err != nil && ctx.Err() == nil {
			g.s.log.Warn("copies of the pool's state: trying again", "error", err)
		}
		again = !done || err != nil
	}
}

// step takes the next step that the records require of this node. It reports whether nothing is
// left to do until the records change.
func (g *grower) step(ctx context.Context) (done bool, err error) {
	voters, all, ready := g.members.view()
	role := g.s.server.role
	d := role.get()
	if err := role.setPeers(peerAddrs(g.s.server.opts.Name, voters, all)); err != nil {
		return false, err
	}
	chosen := slices.ContainsFunc(voters, func(m member) bool { return m.Name == g.s.server.opts.Name })
	switch {
	case d.Import:
		return true, g.s.finishMove(ctx)
	case d.Mode == alone && len(voters) == 0:
		return g.chooseVoters(ctx, all)
	case d.Mode == alone:
		return g.moveWhenPrepared(ctx, voters, all)
	case d.Mode == guest && chosen:
		return false, g.prepare(voters, ready)
	case d.Mode == voter && ready && !chosen:
		return true, demoteRunning(ctx, g.s)
	case d.Mode == voter && !d.Ready && !isPrepared(all, g.s.server.opts.Name):
		return g.reportPrepared(ctx)
	case d.Mode == voter && ready && !d.Ready:
		return true, g.switchOver(voters)
	case d.Mode == voter && ready:
		return g.followVoters(voters, all, d)
	}
	return true, nil
}

// chooseVoters records the voters as soon as there are enough members.
func (g *grower) chooseVoters(ctx context.Context, all []member) (done bool, err error) {
	if len(all) < Copies {
		return true, nil
	}
	present := g.s.server.connectedGuests()
	i := slices.IndexFunc(all, func(m member) bool { return m.Name == g.s.server.opts.Name })
	if i < 0 {
		return true, nil // This node's own record is on its way.
	}
	voters := []member{all[i]}
	for _, m := range all {
		if present[m.Name] && len(voters) < Copies {
			voters = append(voters, m)
		}
	}
	if len(voters) < Copies {
		return false, nil
	}
	return false, g.s.putJSON(ctx, votersKey, voters)
}

// isPrepared reports whether a member's server is in the voters' cluster, by its record.
func isPrepared(all []member, name string) bool {
	return slices.ContainsFunc(all, func(m member) bool { return m.Name == name && m.Prepared })
}

// prepare starts a guest's server, which waits for the table. If the pool still has one copy, the
// server's only route at first is the other new voter: servers without a log elect a leader only
// when all servers that they know are present, and the founder comes later. If the pool has three
// copies, the server joins the existing cluster.
func (g *grower) prepare(voters []member, ready bool) error {
	g.s.log.Info("this node will keep a copy of the pool's state", "voters", names(voters))
	e := g.s.server
	known := voters
	if !ready {
		known = voters[1:]
	}
	err := e.role.change(func(d *roleData) { d.Mode, d.Ready, d.Routes = voter, false, routes(known) })
	if err != nil {
		return err
	}
	return e.start()
}

// switchOver connects a new voter to its own server.
func (g *grower) switchOver(voters []member) error {
	if err := g.s.server.role.change(func(d *roleData) { d.Ready, d.Routes = true, routes(voters) }); err != nil {
		return err
	}
	g.s.log.Info("this node keeps a copy of the pool's state")
	return g.s.nc.ForceReconnect()
}

// followVoters keeps this voter's routes to the current voters that are members: it closes the
// routes to removed nodes, which would stay open, and dials them no more. It changes nothing while
// the remaining voters are no majority.
func (g *grower) followVoters(voters, all []member, d roleData) (done bool, err error) {
	present := slices.DeleteFunc(slices.Clone(voters), func(v member) bool { return !slices.Contains(names(all), v.Name) })
	want := routes(present)
	if slices.Equal(want, d.Routes) || len(want) < majority {
		return true, nil
	}
	g.s.log.Info("the voters of the pool's state have changed", "voters", names(present))
	return true, g.s.server.replaceRoutes(want)
}

// replaceRoutes replaces the servers to which this voter's server has routes, while it runs.
func (e *embedded) replaceRoutes(routes []string) error {
	if err := e.role.change(func(d *roleData) { d.Routes = routes }); err != nil {
		return err
	}
	srv := e.current()
	if srv == nil {
		return nil // Its next start uses them.
	}
	opts, err := e.serverOptions(e.role.get())
	if err != nil {
		return err
	}
	if err := srv.ReloadOptions(opts); err != nil {
		return fmt.Errorf("replace the routes between servers: %w", err)
	}
	return nil
}

// reportPrepared announces that this new voter's server is in the cluster and has a leader.
// Until then the founder serves alone.
func (g *grower) reportPrepared(ctx context.Context) (done bool, err error) {
	srv := g.s.server.current()
	if srv == nil { // It could not start, as while another process listens at its address.
		return false, g.s.server.start()
	}
	if !srv.JetStreamIsCurrent() {
		return false, nil
	}
	return true, g.s.register(ctx, true)
}

// moveWhenPrepared moves the table once the other voters form a cluster, and
// their servers can be reached from here.
func (g *grower) moveWhenPrepared(ctx context.Context, voters, all []member) (done bool, err error) {
	for _, v := range voters {
		if v.Name == g.s.server.opts.Name {
			continue
		}
		if !isPrepared(all, v.Name) {
			return true, nil // Its record will change.
		}
		if err := probe(ctx, v.Route); err != nil {
			return false, fmt.Errorf("voter %s is not reachable: %w", v.Name, err)
		}
	}
	g.s.log.Info("the pool's state moves to three copies", "voters", names(voters))
	return true, g.s.moveTable(ctx, voters)
}

func probe(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

func routes(voters []member) []string {
	var addrs []string
	for _, v := range voters {
		addrs = append(addrs, v.Route)
	}
	return addrs
}

func names(voters []member) []string {
	var names []string
	for _, v := range voters {
		names = append(names, v.Name)
	}
	return names
}

// peerAddrs returns the addresses of all members but self, voters first.
func peerAddrs(self string, voters, all []member) []string {
	var addrs []string
	for _, m := range slices.Concat(voters, all) {
		if m.Name != self && m.Addr != "" && !slices.Contains(addrs, m.Addr) {
			addrs = append(addrs, m.Addr)
		}
	}
	return addrs
}
