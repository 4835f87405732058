package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/appdevice"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/pool"
)

// DevicesSocket is the name of the socket in the data folder on which this node leases
// devices for the functions of its tenants' processes.
const DevicesSocket = "devices.sock"

// serveDevices leases devices for functions.
func (n *Node) serveDevices(ctx context.Context, ready func()) error {
	return n.serveSocket(ctx, DevicesSocket, ready, func(ctx context.Context, conn *net.UnixConn) {
		err := n.lendDevice(ctx, conn)
		_ = conn.SetWriteDeadline(time.Now().Add(requestLimit))
		_ = appdevice.Send(conn, appdevice.EndOf(err), nil) // the process may be gone
	})
}

// lendDevice is the life of one lease for functions.
func (n *Node) lendDevice(ctx context.Context, conn *net.UnixConn) error {
	var request appdevice.DeviceRequest
	_ = conn.SetReadDeadline(time.Now().Add(requestLimit))
	file, err := appdevice.Receive(conn, &request)
	if file != nil {
		_ = file.Close()
	}
	if err != nil {
		return outboard.Errorf(outboard.Protocol, "lease a device", "%w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	owner, spec, err := n.deviceSpec(ctx, request)
	if err != nil {
		return err
	}
	if !n.lent.take(owner) {
		return outboard.Errorf(outboard.Busy, "lease a device", "tenant %s holds %d leases on this node, and no more are allowed: share devices, or lower the concurrency of who uses them", owner, mostLent)
	}
	defer n.lent.give(owner)
	wanted, hungUp := context.WithCancel(ctx)
	defer hungUp()
	var hearing sync.WaitGroup
	defer hearing.Wait()
	defer conn.CloseRead() //nolint:errcheck // it wakes who hears
	hearing.Go(func() {
		defer hungUp()
		_, _ = conn.Read(make([]byte, 1)) // it says nothing more
	})
	l := functionLease{node: n, conn: conn}
	if err := l.acquire(wanted, spec, request.App+"/"+request.Function); err != nil {
		return err
	}
	return l.keep(wanted)
}

// mostLent is how many leases the functions of one tenant may hold, or wait for, at a
// time on one node: each may be a process on the device's.
const mostLent = 64

// lent counts the leases of tenants.
type lent struct {
	mu   sync.Mutex
	held map[string]int
}

func (l *lent) take(tenant string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]int{}
	}
	if l.held[tenant] == mostLent {
		return false
	}
	l.held[tenant]++
	return true
}

func (l *lent) give(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[tenant]--; l.held[tenant] == 0 {
		delete(l.held, tenant)
	}
}

// specLimit is how long this node may take to hear of a version that a process runs.
const specLimit = 2 * time.Second

// deviceSpec is what the manifest lets a function have, and the tenant that asks. The
// process is not believed: a guest that broke out of it gets no more than the manifest says.
func (n *Node) deviceSpec(ctx context.Context, r appdevice.DeviceRequest) (owner string, spec manifest.Device, err error) {
	op := "lease of " + r.App + "/" + r.Function
	owner, ok := n.tenants.Whose(r.Key)
	if !ok {
		return "", spec, outboard.Errorf(outboard.Denied, op, "it comes from no process of this node")
	}
	v, err := n.versionOf(ctx, r)
	if err != nil {
		return "", spec, err
	}
	allowed := manifest.Import{Kind: manifest.ImportDevice, Name: r.Device}
	may := slices.ContainsFunc(v.App.Functions[r.Function].Imports, func(i manifest.Import) bool { return i.String() == allowed.String() })
	spec, ok = v.App.Devices[r.Device]
	if !ok || !may || v.App.Tenant != owner {
		return "", spec, outboard.Errorf(outboard.Denied, op, "tenant %s may not have %s", owner, allowed)
	}
	return owner, spec, nil
}

// versionOf waits until this node knows a version.
func (n *Node) versionOf(ctx context.Context, r appdevice.DeviceRequest) (*catalog.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, specLimit)
	defer cancel()
	for {
		changed := n.apps.Changed()
		if history, ok := n.apps.Get(r.App); ok {
			if i := slices.IndexFunc(history.Versions, func(v catalog.Version) bool { return v.Number == r.Version }); i >= 0 {
				return &history.Versions[i], nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, outboard.Errorf(outboard.NotFound, "lease of "+r.App+"/"+r.Function, "this node knows no version %d of the app", r.Version)
		}
	}
}

// A functionLease is a lease that functions use.
type functionLease struct {
	node  *Node
	conn  *net.UnixConn
	lease outboard.Lease
}

// acquire waits for a device.
func (l *functionLease) acquire(ctx context.Context, spec manifest.Device, program string) error {
	selector, err := outboard.ParseSelector(spec.Selector)
	if err != nil {
		return err
	}
	tell, stop := l.tellWaiting()
	leases, err := l.node.pool.Acquire(ctx, pool.Request{
		Selector: selector, Memory: spec.Memory, Weight: spec.Weight, NoWait: spec.NoWait, Program: program, Progress: tell,
	})
	stop()
	if err != nil {
		return err
	}
	l.lease = leases[0]
	return nil
}

// tellWaiting returns a function that passes on what a request waits for. It never
// blocks: news that nobody has heard is replaced.
func (l *functionLease) tellWaiting() (tell func(pool.Waiting), stop func()) {
	news, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		for text := range news {
			_ = appdevice.Send(l.conn, appdevice.DeviceEvent{Waiting: text}, nil) // a process that is gone hangs up
		}
	}()
	tell = func(w pool.Waiting) {
		select {
		case <-news:
		default:
		}
		news <- waitingText(w)
	}
	return tell, func() {
		close(news)
		<-done
	}
}

// waitingText says what a request waits for.
func waitingText(w pool.Waiting) string {
	var held []string
	for _, d := range w.Busy {
		for _, g := range d.Grants {
			held = append(held, fmt.Sprintf("%s by %s (%s)", d.ID, g.Holder, g.Program))
		}
	}
	slices.Sort(held)
	text := fmt.Sprintf("place %d in the queue", w.Position)
	if len(held) > 0 {
		text += ", and all devices that fit are leased: " + strings.Join(slices.Compact(held), ", ")
	}
	return text
}

// keep gives the process a session, and renews the lease until the process hangs up.
func (l *functionLease) keep(wanted context.Context) (err error) {
	n := l.node
	standing, release := context.WithCancel(context.WithoutCancel(wanted))
	held := make(chan error, 1)
	go func() { held <- n.pool.Hold(standing, l.lease) }()
	defer func() {
		release()
		if lost := <-held; err == nil {
			err = lost
		}
	}()
	granted, err := n.describe(l.lease)
	if err != nil {
		return err
	}
	link, closeWay, err := n.dialDevice(wanted, granted)
	if err != nil {
		return err
	}
	defer closeWay()
	defer link.Close()
	about := appdevice.GrantedDevice{Lease: l.lease.Lease, Memory: l.lease.Memory, Device: granted.About}
	if err := appdevice.Send(l.conn, appdevice.DeviceEvent{Granted: &about}, link.File()); err != nil {
		return err
	}
	select {
	case <-wanted.Done():
		return nil
	case <-link.Done():
		return l.lost(link.Err())
	case err := <-held:
		held <- nil
		return l.lost(err)
	}
}

// lost tells at once why the lease ends early: the pool, which is to hear of it, too, may
// be slow for the same reason. It names the device, which a cut connection does not know.
func (l *functionLease) lost(err error) error {
	if err != nil && !strings.Contains(err.Error(), string(l.lease.Device)) {
		err = fmt.Errorf("%s: %w", l.lease.Device, err)
	}
	_ = appdevice.Send(l.conn, appdevice.EndOf(err), nil) // the process may be gone
	return err
}

// dialDevice opens a session on a leased device.
func (n *Node) dialDevice(ctx context.Context, g client.Granted) (link borrow.Link, closeWay func(), err error) {
	if g.Addr == "" {
		s, err := n.startSession(ctx, g.Claim, n.self.ID, "shm")
		return ownSession{s}, func() {}, err
	}
	way := borrow.NewRemote(borrow.RemoteOptions{
		Addr: g.Addr, TLS: n.deviceTLS(g), DeadAfter: n.opts.DeadAfter,
	})
	if link, err = way.Dial(ctx, g.Claim); err != nil {
		return nil, nil, errors.Join(err, way.Close())
	}
	return link, func() { _ = way.Close() }, nil
}

// An ownSession is a session on a device of this node.
type ownSession struct{ *lend.Session }

// File implements borrow.Link.
func (s ownSession) File() *os.File { return s.Ring().File() }

// Done implements borrow.Link. It is told when the end begins: the worker may take a moment.
func (s ownSession) Done() <-chan struct{} { return s.Ending() }

// deviceTLS trusts the device's node alone.
func (n *Node) deviceTLS(g client.Granted) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		return n.identity.ClientTLS(g.About.Node, g.Fingerprint, borrow.Protocol), nil
	}
}
