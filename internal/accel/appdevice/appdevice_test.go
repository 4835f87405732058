package appdevice

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/shm"
)

// dock is a node that leases devices, whose workers report every command as done.
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
	held   map[*ipc.Conn]bool
	most   int
}

func newDock(t testing.TB) *dock {
	t.Helper()
	dir, err := os.MkdirTemp("", "dock") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	d := &dock{t: t, path: filepath.Join(dir, "devices.sock"), held: map[*ipc.Conn]bool{}}
	l, err := ipc.Listen(d.path)
	if err != nil {
		t.Fatal(err)
	}
	d.serves.Go(func() {
		for {
			socket, err := l.AcceptUnix()
			if err != nil {
				return
			}
			d.serves.Go(func() { d.serve(ipc.New(socket, LeaseOptions)) })
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

// leases are how many are held now, and the most that were.
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

func (d *dock) serve(conn *ipc.Conn) {
	defer conn.Close()
	var r DeviceRequest
	m, err := conn.Receive(context.Background())
	if err != nil {
		return
	}
	if err := m.Decode(&r); err != nil || m.Type != TypeLease {
		d.t.Errorf("got a message of type %s, %v, want a request", m.Type, err)
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
		_ = conn.Send(TypeEnded, ipc.ReasonOf(refuse))
	case wait != "":
		_ = conn.Send(TypeWaiting, Waiting{Text: wait})
		_, _ = conn.Receive(context.Background())
	default:
		d.lend(conn)
	}
}

// lend is a lease until the process hangs up or the dock ends it.
func (d *dock) lend(conn *ipc.Conn) {
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
	if err := conn.Send(TypeGranted, about, ring.File()); err == nil {
		_, _ = conn.Receive(context.Background())
	}
	_ = worker.Close(shm.Done)
	working.Wait()
	d.set(func() { delete(d.held, conn) })
	_ = conn.Send(TypeEnded, ipc.ReasonOf(nil))
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
		_ = conn.Send(TypeEnded, ipc.ReasonOf(why))
	}
}

// app is an app whose functions import devices at a dock.
type app struct {
	*Leases
	devices map[string]Spec
}

func newApp(t testing.TB, d *dock) *app {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		end()
		running.Wait()
		if now, _ := d.leases(); now != 0 {
			t.Errorf("%d leases are left", now)
		}
	})
	return &app{New(Options{App: "shop", Socket: d.path, Key: "key", Life: life, Go: running.Go}), map[string]Spec{
		"gpu": {Selector: "type=gpu"}, "hurried": {NoWait: true}, "patient": {Timeout: 8 * time.Second},
		"kept": {Keep: time.Hour}, "briefly": {Keep: time.Millisecond},
	}}
}

func (a *app) caller(name string, share bool) Caller {
	return Caller{Version: 3, Function: "cart", Name: name, Spec: a.devices[name], Share: share}
}

func (a *app) open(ctx context.Context, name string, share bool) (*Device, error) {
	return a.Import(ctx, a.caller(name, share))
}

func (a *app) mustOpen(t *testing.T, name string, share bool) *Device {
	t.Helper()
	r, err := a.open(t.Context(), name, share)
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
			f := newApp(t, d)
			var all []*Device
			for range 3 {
				all = append(all, f.mustOpen(t, "gpu", share))
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
						t.Errorf("%d leases while a call holds the device", now)
					}
				}
			}
			f.awaitReturns(t.Context())
			if now, _ := d.leases(); now != 0 {
				t.Errorf("%d leases after the last holder", now)
			}
			// The next one begins anew.
			f.mustOpen(t, "gpu", share).Release()
			if diff := cmp.Diff(DeviceRequest{Key: "key", App: "shop", Version: 3, Function: "cart", Device: "gpu"}, d.asked[want]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeviceInfo(t *testing.T) {
	r := newApp(t, newDock(t)).mustOpen(t, "gpu", false)
	defer r.Release()
	const want = `{"import":"gpu","device":"quay/opencl/0","node":"quay","type":"gpu","name":"toy","vendor":"","version":"",` +
		`"units":0,"memory":1048576,"buffer":0,"local_memory":0,"work_group":0}`
	if diff := cmp.Diff(want, string(r.Info())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRefusedDevices(t *testing.T) {
	d := newDock(t)
	f := newApp(t, d)
	busy := outboard.Errorf(outboard.Busy, "lease a device", "all devices that fit are leased: quay/opencl/0 by node quay")
	d.set(func() { d.refuse = busy })
	for _, share := range []bool{true, false} {
		if _, err := f.open(t.Context(), "hurried", share); outboard.KindOf(err) != outboard.Busy || err.Error() != busy.Error() {
			t.Errorf("got %v, want %v", err, busy)
		}
	}
	d.set(func() { d.refuse = nil })
	f.mustOpen(t, "hurried", true).Release()
	f.opts.Socket = ""
	if _, err := f.open(t.Context(), "gpu", false); outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("without a node: %v", err)
	}
}

// A caller that waits in vain reads why before its call is over. The reason comes from another process,
// which a busy machine may delay by seconds.
func TestDeviceWait(t *testing.T) {
	d := newDock(t)
	f := newApp(t, d)
	d.set(func() { d.wait = "place 2 in the queue" })
	wait := func(name string, share bool) error {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 12*time.Second, errors.New("the call is over"))
		defer cancel()
		_, err := f.open(ctx, name, share)
		return err
	}
	var waiting sync.WaitGroup
	for _, share := range []bool{true, false} {
		for _, name := range []string{"gpu", "patient"} {
			waiting.Go(func() {
				err := wait(name, share)
				if outboard.KindOf(err) != outboard.Busy || !strings.Contains(err.Error(), "for a device: place 2 in the queue; free one, or raise the timeout of devices."+name) {
					t.Errorf("%s: got %v", name, err)
				}
			})
		}
	}
	waiting.Wait()
	// A caller that gives up is no lack of devices.
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller has gone")
	cancel(gone)
	if _, err := f.open(ctx, "gpu", true); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
}

// A caller that gives up does not end the wait of others that share the lease.
func TestDeviceWaitIsShared(t *testing.T) {
	d := newDock(t)
	f := newApp(t, d)
	first, fresh := f.join(f.caller("gpu", true))
	second, another := f.join(f.caller("gpu", true))
	if first != second || !fresh || another {
		t.Fatal("they wait for two leases")
	}
	first.release()
	if err := second.await(t.Context()); err != nil {
		t.Error(err)
	}
	second.release()
}

func TestDeviceDies(t *testing.T) {
	for _, share := range []bool{true, false} {
		d := newDock(t)
		f := newApp(t, d)
		d.set(func() { d.mute = true })
		r, done := f.mustOpen(t, "gpu", share), make(chan error, 1)
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
		// A lost lease is not offered to new callers.
		d.set(func() { d.mute = false })
		next := f.mustOpen(t, "gpu", share)
		if _, err := next.Do(t.Context(), makeBuffer, nil); err != nil {
			t.Error(err)
		}
		next.Release()
		r.Release()
	}
}

// A device that may still execute the commands of a caller that gave up is not shared any more.
func TestStuckDevice(t *testing.T) {
	d := newDock(t)
	f := newApp(t, d)
	d.set(func() { d.mute = true })
	r, other := f.mustOpen(t, "gpu", true), f.mustOpen(t, "gpu", true)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the deadline")
	cancel(gone)
	if _, err := r.Do(ctx, makeBuffer, nil); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
	r.Release()
	d.set(func() { d.mute = false })
	next := f.mustOpen(t, "gpu", true)
	if now, _ := d.leases(); now != 2 {
		t.Errorf("%d leases, want the stuck one and another", now)
	}
	for _, r := range []*Device{other, next} {
		if _, err := r.Do(t.Context(), makeBuffer, nil); err != nil {
			t.Error(err)
		}
		r.Release()
	}
}

// An idle lease serves the next caller, unless it ends meanwhile.
func TestDeviceIsKept(t *testing.T) {
	d := newDock(t)
	f := newApp(t, d)
	use := func(name string, share bool) {
		t.Helper()
		r := f.mustOpen(t, name, share)
		if _, err := r.Do(t.Context(), makeBuffer, nil); err != nil {
			t.Error(err)
		}
		r.Release()
		f.awaitReturns(t.Context())
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
	use("kept", false) // it is not shared
	if now, most := d.leases(); now != 1 || most != 2 {
		t.Errorf("%d leases, at most %d", now, most)
	}
	f.mu.Lock()
	lease := f.shared[leaseKey{"kept", f.devices["kept"]}].lease
	f.mu.Unlock()
	d.end(errors.New("the device has gone"))
	<-lease.done
	use("kept", true)
	if asked() != 3 {
		t.Errorf("%d were asked for", asked())
	}
	f.Close()
	f.awaitReturns(t.Context())
	if now, _ := d.leases(); now != 0 {
		t.Errorf("%d leases of an app that was removed", now)
	}
	use("briefly", true)
	for now, _ := d.leases(); now != 0; now, _ = d.leases() {
		time.Sleep(time.Millisecond)
	}
}

// A caller that does not want to wait is not refused because of leases that its own app is returning.
func TestHurriedDevice(t *testing.T) {
	d := newDock(t)
	f := newApp(t, d)
	d.set(func() { d.single = true })
	for range 20 {
		f.mustOpen(t, "hurried", false).Release()
	}
	f.awaitReturns(t.Context())
	r := f.mustOpen(t, "gpu", false)
	if _, err := f.open(t.Context(), "hurried", false); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("got %v, want that the device is leased", err)
	}
	r.Release()
}
