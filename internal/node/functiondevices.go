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
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// DevicesSocket is the name of the socket in the data folder on which this node leases
// devices for the functions of its tenants' processes.
const DevicesSocket = "devices.sock"

// deviceBroker leases devices for the functions of tenants' processes. A connection is a lease.
type deviceBroker struct {
	pool      *pool.Pool
	tenants   *host.Host
	apps      *catalog.Catalog
	sessions  *sessionServer
	grants    *grants
	identity  *authority.Identity
	deadAfter time.Duration
	quota     tenantQuota
}

// serve serves one connection.
func (b *deviceBroker) serve(ctx context.Context, socket *net.UnixConn) {
	conn := ipc.New(socket, appdevice.LeaseOptions)
	err := b.lend(ctx, conn)
	_ = conn.Send(appdevice.TypeEnded, ipc.ReasonOf(err)) // the process may be gone
}

// lend serves one lease until the process hangs up or the lease ends.
func (b *deviceBroker) lend(ctx context.Context, conn *ipc.Conn) error {
	var request appdevice.DeviceRequest
	if err := receiveFirst(ctx, conn, appdevice.TypeLease, &request); err != nil {
		return err
	}
	owner, spec, err := b.authorize(ctx, request)
	if err != nil {
		return err
	}
	if !b.quota.acquire(owner, maxTenantLeases) {
		return outboard.Errorf(outboard.Busy, "lease a device", "tenant %s holds %d leases on this node, and no more are allowed: share devices, or lower the concurrency of the functions that use them", owner, maxTenantLeases)
	}
	defer b.quota.release(owner)
	wanted, hungUp := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer hungUp()
	reading.Go(func() {
		defer hungUp()
		if m, err := conn.Receive(wanted); err == nil {
			m.Close() // the process has no more messages to send
		}
	})
	l := functionLease{broker: b, conn: conn}
	if err := l.acquire(wanted, spec, programName(owner, request)); err != nil {
		return err
	}
	return l.serve(wanted)
}

// programName returns the pool's name for a function. The tenant is part of it: the device's node
// keeps a cache of compiled kernels for each program of a holder.
func programName(tenant string, r appdevice.DeviceRequest) string {
	return tenant + "/" + r.App + "/" + r.Function
}

// maxTenantLeases bounds the leases that the functions of one tenant hold or wait for at a
// time on one node: each may be a process on the device's node.
const maxTenantLeases = 64

// specLimit is how long this node may take to receive a version of an app that a process runs.
const specLimit = 2 * time.Second

// authorize returns the device that the manifest grants a function, and the tenant that requests
// it. The process is not trusted: a guest that broke out of it gets no more than the manifest
// grants.
func (b *deviceBroker) authorize(ctx context.Context, r appdevice.DeviceRequest) (owner string, spec manifest.Device, err error) {
	op := "lease of " + r.App + "/" + r.Function
	owner, ok := b.tenants.TenantOfKey(r.Key)
	if !ok {
		return "", spec, outboard.Errorf(outboard.Denied, op, "no process of this node has this key")
	}
	v, err := b.versionOf(ctx, r)
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

// versionOf waits until this node has a version of an app.
func (b *deviceBroker) versionOf(ctx context.Context, r appdevice.DeviceRequest) (*catalog.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, specLimit)
	defer cancel()
	for {
		changed := b.apps.Changed()
		if history, ok := b.apps.Get(r.App); ok {
			if i := slices.IndexFunc(history.Versions, func(v catalog.Version) bool { return v.Number == r.Version }); i >= 0 {
				return &history.Versions[i], nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, outboard.Errorf(outboard.NotFound, "lease of "+r.App+"/"+r.Function, "this node has no version %d of the app", r.Version)
		}
	}
}

// A functionLease is a lease for functions.
type functionLease struct {
	broker *deviceBroker
	conn   *ipc.Conn
	lease  outboard.Lease
}

// acquire waits for a device.
func (l *functionLease) acquire(ctx context.Context, spec manifest.Device, program string) error {
	selector, err := outboard.ParseSelector(spec.Selector)
	if err != nil {
		return err
	}
	progress, stop := l.reportWaiting()
	leases, err := l.broker.pool.Acquire(ctx, pool.Request{
		Selector: selector, Memory: spec.Memory, Weight: spec.Weight, NoWait: spec.NoWait, Program: program, Progress: progress,
	})
	stop()
	if err != nil {
		return err
	}
	l.lease = leases[0]
	return nil
}

// reportWaiting returns a function that sends the process the reason why its request waits. It
// never blocks: a newer text replaces an unsent one.
func (l *functionLease) reportWaiting() (report func(pool.Waiting), stop func()) {
	latest, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		for text := range latest {
			_ = l.conn.Send(appdevice.TypeWaiting, appdevice.Waiting{Text: text}) // a process that is gone hangs up
		}
	}()
	report = func(w pool.Waiting) {
		select {
		case <-latest:
		default:
		}
		latest <- w.String()
	}
	return report, func() {
		close(latest)
		<-done
	}
}

// serve opens a session for the process, and renews the lease until the process hangs up.
func (l *functionLease) serve(wanted context.Context) (err error) {
	b := l.broker
	standing, release := context.WithCancel(context.WithoutCancel(wanted))
	held := make(chan error, 1)
	go func() { held <- b.pool.Hold(standing, l.lease) }()
	defer func() {
		release()
		if lost := <-held; err == nil {
			err = lost
		}
	}()
	granted, err := b.grants.describe(l.lease)
	if err != nil {
		return err
	}
	link, hangUp, err := b.dial(wanted, granted)
	if err != nil {
		return err
	}
	defer hangUp()
	defer link.Close()
	about := appdevice.GrantedDevice{Lease: l.lease.Lease, Memory: l.lease.Memory, Device: granted.About}
	if err := l.conn.Send(appdevice.TypeGranted, &about, link.File()); err != nil {
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

// lost reports at once why the lease ends early: releasing it in the pool may be slow for the same
// reason. The text names the device, which the error of a cut connection lacks.
func (l *functionLease) lost(err error) error {
	if err != nil && !strings.Contains(err.Error(), string(l.lease.Device)) {
		err = fmt.Errorf("%s: %w", l.lease.Device, err)
	}
	_ = l.conn.Send(appdevice.TypeEnded, ipc.ReasonOf(err)) // the process may be gone
	return err
}

// dial opens a session on a leased device.
func (b *deviceBroker) dial(ctx context.Context, g client.Granted) (link borrow.Link, hangUp func(), err error) {
	if g.Addr == "" {
		s, err := b.sessions.start(ctx, g.Claim, b.sessions.self, "shm")
		return localSession{s}, func() {}, err
	}
	device := borrow.NewRemote(borrow.RemoteOptions{
		Addr: g.Addr, TLS: b.deviceTLS(g), DeadAfter: b.deadAfter,
		Dialed: func(nc net.Conn) error { return authority.CloseOnRevoke(b.identity, g.Fingerprint, nc) },
	})
	if link, err = device.Dial(ctx, g.Claim); err != nil {
		return nil, nil, errors.Join(err, device.Close())
	}
	return link, func() { _ = device.Close() }, nil
}

// A localSession is a session on a device of this node.
type localSession struct{ *lend.Session }

// File implements borrow.Link.
func (s localSession) File() *os.File { return s.Ring().File() }

// Done implements borrow.Link. The channel is closed when the session begins to end: the worker may
// end later.
func (s localSession) Done() <-chan struct{} { return s.Ending() }

// deviceTLS returns a configuration that trusts the device's node alone.
func (b *deviceBroker) deviceTLS(g client.Granted) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		return b.identity.ClientTLS(g.About.Node, g.Fingerprint, borrow.Protocol), nil
	}
}
