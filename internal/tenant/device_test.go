package tenant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A dock is a node that leases devices, whose workers say that all is done.
type dock struct {
	t      testing.TB
	path   string
	serves sync.WaitGroup

	mu     sync.Mutex
	refuse error  // what is said instead of a lease
	wait   string // what is said for ever
	mute   bool   // workers answer nothing
	single bool   // there is one device
	asked  []DeviceRequest
	held   map[net.Conn]bool
	most   int
}

func newDock(t testing.TB) *dock {
	t.Helper()
	dir, err := os.MkdirTemp("", "dock") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	d := &dock{t: t, path: filepath.Join(dir, "devices.sock"), held: map[net.Conn]bool{}}
	l, err := unixsock.Listen(d.path)
	if err != nil {
		t.Fatal(err)
	}
	d.serves.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			d.serves.Go(func() { d.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.set(func() {
			for conn := range d.held {
				_ = conn.Close() // of a test that failed
			}
		})
		d.serves.Wait()
		_ = os.RemoveAll(dir)
	})
	return d
}

// leases are how many are held now, and at most were.
func (d *dock) leases() (now, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held), d.most
}

func (d *dock) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *dock) serve(conn *net.UnixConn) {
	defer conn.Close()
	var r DeviceRequest
	if _, err := Hear(conn, &r); err != nil {
		return
	}
	d.mu.Lock()
	d.asked = append(d.asked, r)
	refuse, wait := d.refuse, d.wait
	if d.single && len(d.held) > 0 {
		refuse = outboard.Errorf(outboard.Busy, "", "the device is leased")
	}
	if refuse == nil && wait == "" {
		d.held[conn] = true
		d.most = max(d.most, len(d.held))
	}
	d.mu.Unlock()
	switch {
	case refuse != nil:
		_ = Say(conn, EndOf(refuse), nil)
	case wait != "":
		_ = Say(conn, DeviceEvent{Waiting: wait}, nil)
		_, _ = conn.Read(make([]byte, 1))
	default:
		d.lend(conn)
	}
}

// lend is a lease until the process hangs up or the dock ends it.
func (d *dock) lend(conn *net.UnixConn) {
	ring, err := shm.Create(1 << 16)
	if err != nil {
		d.t.Error(err)
		return
	}
	defer ring.Unmap()
	far, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", ring.File().Fd()), os.O_RDWR, 0)
	if err != nil {
		d.t.Error(err)
		return
	}
	worker, err := shm.Open(far, shm.Worker)
	if err != nil {
		d.t.Error(err)
		return
	}
	defer worker.Unmap()
	var working sync.WaitGroup
	working.Go(func() { d.work(worker) })
	about := GrantedDevice{Lease: "l", Memory: 1 << 20, Device: outboard.Device{ID: "quay/opencl/0", Node: "quay", Type: outboard.GPU, Name: "toy"}}
	if err := Say(conn, DeviceEvent{Granted: &about}, ring.File()); err == nil {
		_, _ = conn.Read(make([]byte, 1))
	}
	_ = worker.Close(shm.Done)
	working.Wait()
	d.set(func() { delete(d.held, conn) })
	_ = Say(conn, EndOf(nil), nil)
}

// work answers whatever wants an answer.
func (d *dock) work(ring *shm.Ring) {
	in, err := session.NewReader(ring, ring.Area())
	if err != nil {
		d.t.Error(err)
		return
	}
	defer in.Close()
	out := session.NewWriter(ring, ring.Area())
	const snapshot = 0x8100
	noFacts := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1<<20), 0)
	for err = out.Send(session.Header{Op: snapshot}, noFacts); err == nil; {
		var h session.Header
		if h, _, err = in.Next(); err != nil || h.Flags&session.WantReply == 0 {
			continue
		}
		d.mu.Lock()
		mute := d.mute
		d.mu.Unlock()
		if !mute {
			err = out.Send(session.Header{Op: h.Op, Flags: session.IsReply, Call: h.Call}, nil)
		}
	}
}

// end ends all leases for a reason.
func (d *dock) end(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.held {
		_ = Say(conn.(*net.UnixConn), EndOf(why), nil) //nolint:forcetypeassert // no others are held
	}
}

// crew is a function that may import devices at a dock.
func crew(t testing.TB, d *dock) *deployed {
	t.Helper()
	tenant := New(Config{Tenant: "default", Node: "harbour", DevicesSocket: d.path, DevicesKey: "key"}, ProcessOptions{})
	life, err := tenant.openLife(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := life.Close(); err != nil {
			t.Error(err)
		}
		if now, _ := d.leases(); now != 0 {
			t.Errorf("%d leases are left", now)
		}
	})
	spec := &manifest.App{Name: "shop", Devices: map[string]manifest.Device{
		"gpu": {Selector: "type=gpu"}, "hurried": {NoWait: true}, "patient": {Timeout: 300 * time.Millisecond},
		"kept": {Keep: time.Hour}, "briefly": {Keep: time.Millisecond},
	}}
	f := &deployed{name: "cart", version: &version{number: 3, spec: spec, home: newHome(tenant, "shop")}, imports: map[string]manifest.Import{}}
	for name := range spec.Devices {
		i := manifest.Import{Kind: manifest.ImportDevice, Name: name}
		f.imports[i.String()] = i
	}
	return f
}

// board imports a device.
func (d *deployed) board(ctx context.Context, name string, share bool) (function.Device, error) {
	i := d.imports["device:"+name]
	i.Share = share
	d.imports["device:"+name] = i
	r, err := d.Import(ctx, "device:"+name)
	if err != nil {
		return nil, err
	}
	return r.(function.Device), nil //nolint:forcetypeassert // that is what is tested
}

func mustBoard(t *testing.T, d *deployed, name string, share bool) function.Device {
	t.Helper()
	r, err := d.board(t.Context(), name, share)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// makeBuffer is a list that makes a buffer.
var makeBuffer = []byte{1, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0}

func TestDeviceIsShared(t *testing.T) {
	for share, want := range map[bool]int{true: 1, false: 3} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			d := newDock(t)
			f := crew(t, d)
			var all []function.Device
			for range 3 {
				all = append(all, mustBoard(t, f, "gpu", share))
			}
			for _, r := range all {
				if _, err := r.Do(t.Context(), makeBuffer, nil); err != nil {
					t.Error(err)
				}
			}
			if now, _ := d.leases(); now != want {
				t.Errorf("%d leases, want %d", now, want)
			}
			for i, r := range all {
				r.Release()
				if share && i < 2 {
					if now, _ := d.leases(); now != 1 {
						t.Errorf("%d leases while somebody holds the device", now)
					}
				}
			}
			f.version.home.devices.settle(t.Context())
			if now, _ := d.leases(); now != 0 {
				t.Errorf("%d leases after the last holder", now)
			}
			// The next one begins anew.
			mustBoard(t, f, "gpu", share).Release()
			if diff := cmp.Diff(DeviceRequest{Key: "key", App: "shop", Version: 3, Function: "cart", Device: "gpu"}, d.asked[want]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeviceInfo(t *testing.T) {
	r := mustBoard(t, crew(t, newDock(t)), "gpu", false)
	defer r.Release()
	const want = `{"import":"gpu","device":"quay/opencl/0","node":"quay","type":"gpu","name":"toy","vendor":"","version":"",` +
		`"units":0,"memory":1048576,"buffer":0,"local_memory":0,"work_group":0}`
	if diff := cmp.Diff(want, string(r.Info())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRefusedDevices(t *testing.T) {
	d := newDock(t)
	f := crew(t, d)
	for name, want := range map[string]string{
		"device:moon": `function cart may not: add "- device: moon" to functions.cart.imports in the manifest of app shop`,
		"model:moon":  "this pool has no models yet: model:moon can't be imported",
		"moon":        "KIND is one of arena, bucket, device, function and secret",
	} {
		if _, err := f.Import(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	busy := outboard.Errorf(outboard.Busy, "lease a device", "all devices that fit are leased: quay/opencl/0 by node quay")
	d.set(func() { d.refuse = busy })
	for _, share := range []bool{true, false} {
		if _, err := f.board(t.Context(), "hurried", share); outboard.KindOf(err) != outboard.Busy || err.Error() != busy.Error() {
			t.Errorf("got %v, want %v", err, busy)
		}
	}
	d.set(func() { d.refuse = nil })
	mustBoard(t, f, "hurried", true).Release()
	f.version.home.tenant.config.DevicesSocket = ""
	if _, err := f.board(t.Context(), "gpu", false); outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("without a node: %v", err)
	}
}

// Who waits in vain is told why, before his call is over.
func TestDeviceWait(t *testing.T) {
	d := newDock(t)
	f := crew(t, d)
	d.set(func() { d.wait = "place 2 in the queue" })
	wait := func(name string, share bool) error {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 600*time.Millisecond, errors.New("the call is over"))
		defer cancel()
		_, err := f.board(ctx, name, share)
		return err
	}
	for _, share := range []bool{true, false} {
		for _, name := range []string{"gpu", "patient"} {
			err := wait(name, share)
			if outboard.KindOf(err) != outboard.Busy || !strings.Contains(err.Error(), "for a device: place 2 in the queue; free one, or raise the timeout of devices."+name) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
	// A caller that gives up is no lack of devices.
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller has gone")
	cancel(gone)
	if _, err := f.board(ctx, "gpu", true); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
}

// One who gives up leaves the wait to the others who share it.
func TestDeviceWaitIsShared(t *testing.T) {
	d := newDock(t)
	f := crew(t, d)
	first, fresh := f.version.home.join(f, manifest.Import{Kind: manifest.ImportDevice, Name: "gpu", Share: true})
	second, another := f.version.home.join(f, manifest.Import{Kind: manifest.ImportDevice, Name: "gpu", Share: true})
	if first != second || !fresh || another {
		t.Fatal("they wait for two leases")
	}
	first.leave()
	if err := second.await(t.Context()); err != nil {
		t.Error(err)
	}
	second.leave()
}

func TestDeviceDies(t *testing.T) {
	for _, share := range []bool{true, false} {
		d := newDock(t)
		f := crew(t, d)
		d.set(func() { d.mute = true })
		r, done := mustBoard(t, f, "gpu", share), make(chan error, 1)
		go func() {
			_, err := r.Do(t.Context(), makeBuffer, nil)
			done <- err
		}()
		d.end(outboard.Errorf(outboard.Unreachable, "", "quay/opencl/0: the node is silent"))
		for range 2 {
			if err := <-done; outboard.KindOf(err) != outboard.Unreachable || !strings.Contains(err.Error(), "quay/opencl/0: the node is silent") {
				t.Errorf("got %v", err)
			}
			go func() {
				_, err := r.Do(t.Context(), makeBuffer, nil)
				done <- err
			}()
		}
		<-done
		// Nobody new gets what is lost.
		d.set(func() { d.mute = false })
		next := mustBoard(t, f, "gpu", share)
		if _, err := next.Do(t.Context(), makeBuffer, nil); err != nil {
			t.Error(err)
		}
		next.Release()
		r.Release()
	}
}

// A device that may work for ever for somebody who gave up is nobody else's.
func TestStuckDevice(t *testing.T) {
	d := newDock(t)
	f := crew(t, d)
	d.set(func() { d.mute = true })
	r, other := mustBoard(t, f, "gpu", true), mustBoard(t, f, "gpu", true)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the deadline")
	cancel(gone)
	if _, err := r.Do(ctx, makeBuffer, nil); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
	r.Release()
	d.set(func() { d.mute = false })
	next := mustBoard(t, f, "gpu", true)
	if now, _ := d.leases(); now != 2 {
		t.Errorf("%d leases, want the stuck one and another", now)
	}
	for _, r := range []function.Device{other, next} {
		if _, err := r.Do(t.Context(), makeBuffer, nil); err != nil {
			t.Error(err)
		}
		r.Release()
	}
}

// A lease that is kept serves the next holder, unless it ends meanwhile.
func TestDeviceIsKept(t *testing.T) {
	d := newDock(t)
	f := crew(t, d)
	use := func(name string, share bool) {
		t.Helper()
		r := mustBoard(t, f, name, share)
		if _, err := r.Do(t.Context(), makeBuffer, nil); err != nil {
			t.Error(err)
		}
		r.Release()
		f.version.home.devices.settle(t.Context())
	}
	asked := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.asked)
	}
	use("kept", true)
	use("kept", true)
	if now, _ := d.leases(); now != 1 || asked() != 1 {
		t.Errorf("%d leases, %d were asked for", now, asked())
	}
	use("kept", false) // it is nobody else's
	if now, most := d.leases(); now != 1 || most != 2 {
		t.Errorf("%d leases, at most %d", now, most)
	}
	devices := &f.version.home.devices
	devices.mu.Lock()
	lease := devices.shared[deviceKey{"kept", f.version.spec.Devices["kept"]}].lease
	devices.mu.Unlock()
	d.end(errors.New("the device has gone"))
	<-lease.done
	use("kept", true)
	if asked() != 3 {
		t.Errorf("%d were asked for", asked())
	}
	f.version.home.close()
	f.version.home.devices.settle(t.Context())
	if now, _ := d.leases(); now != 0 {
		t.Errorf("%d leases of an app that was removed", now)
	}
	use("briefly", true)
	(&bench{t: t}).eventually(func() bool { now, _ := d.leases(); return now == 0 })
}

// Who does not want to wait does not find what the app itself is giving back.
func TestHurriedDevice(t *testing.T) {
	d := newDock(t)
	f := crew(t, d)
	d.set(func() { d.single = true })
	for range 20 {
		mustBoard(t, f, "hurried", false).Release()
	}
	f.version.home.devices.settle(t.Context())
	r := mustBoard(t, f, "gpu", false)
	if _, err := f.board(t.Context(), "hurried", false); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("got %v, want who has the device", err)
	}
	r.Release()
}
