package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/appdevice"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// A puppet is a tenant's process that does nothing but say what it was told.
type puppet struct{ told chan tenant.Config }

func (p *puppet) launch(socket *os.File) (host.Launched, error) {
	return helper.Goroutine(p.run)("", socket)
}

func (p *puppet) run(ctx context.Context, socket *os.File) error {
	node, c, err := receiveTenantConfig(ctx, socket)
	if err != nil {
		return err
	}
	defer node.Close()
	if err := node.Send(tenant.TypeReady, tenant.Ready{PID: 1}); err != nil {
		return err
	}
	p.told <- c
	_, _ = node.Receive(ctx) // until the node closes the socket
	return nil
}

// receiveTenantConfig does what a tenant's process does first.
func receiveTenantConfig(ctx context.Context, socket *os.File) (node *ipc.Conn, c tenant.Config, err error) {
	node, err = ipc.FromFile(socket, ipc.Options{})
	if err != nil {
		return nil, c, err
	}
	m, err := node.Receive(ctx)
	if err == nil {
		err = m.Decode(&c)
	}
	if err != nil {
		return nil, c, errors.Join(err, node.Close())
	}
	return node, c, nil
}

// keysOf starts a process for each tenant, and returns their keys.
func keysOf(t *testing.T, n *deviceBroker, tenants ...string) map[string]string {
	t.Helper()
	p := &puppet{told: make(chan tenant.Config, len(tenants))}
	var err error
	if n.tenants, err = host.Open(t.Context(), host.Options{Dir: t.TempDir(), Launch: p.launch, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.tenants.Close(); err != nil {
			t.Error(err)
		}
	})
	n.tenants.SetTenants(tenants)
	keys := map[string]string{}
	for range tenants {
		c := <-p.told
		keys[c.Tenant] = c.DevicesKey
	}
	return keys
}

// A process gets what the manifest lets its functions have, and nothing else, whatever it
// says.
func TestAuthorize(t *testing.T) {
	n := &deviceBroker{}
	var err error
	if n.apps, err = catalog.Open(t.Context(), catalog.Options{State: statetest.Open(t), Self: "harbour"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.apps.Close() })
	keys := keysOf(t, n, "tea", "coffee")
	app := manifest.App{
		Name: "shop", Tenant: "tea",
		Functions: map[string]manifest.Function{
			"cart":  {Module: "cart.wasm", Imports: []manifest.Import{{Kind: manifest.ImportDevice, Name: "gpu", Share: true}}},
			"price": {Module: "price.wasm", Imports: []manifest.Import{{Kind: manifest.ImportBucket, Name: "gpu"}}},
		},
		Devices: map[string]manifest.Device{"gpu": {Selector: "type=gpu", Memory: 1 << 20}, "cpu": {}},
	}
	if _, err := n.apps.Apply(t.Context(), catalog.Version{App: app}); err != nil {
		t.Fatal(err)
	}
	right := appdevice.DeviceRequest{Key: keys["tea"], App: "shop", Version: 1, Function: "cart", Device: "gpu"}
	owner, spec, err := n.authorize(t.Context(), right)
	if diff := cmp.Diff(app.Devices["gpu"], spec); err != nil || owner != "tea" || diff != "" {
		t.Errorf("got %s, %v (-want +got):\n%s", owner, err, diff)
	}
	soon, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits for versions that do not come
	for name, change := range map[string]func(r *appdevice.DeviceRequest){
		"no key":           func(r *appdevice.DeviceRequest) { r.Key = "" },
		"a wrong key":      func(r *appdevice.DeviceRequest) { r.Key = strings.ToLower(r.Key) },
		"another tenant":   func(r *appdevice.DeviceRequest) { r.Key = keys["coffee"] },
		"another version":  func(r *appdevice.DeviceRequest) { r.Version = 2 },
		"another app":      func(r *appdevice.DeviceRequest) { r.App = "bank" },
		"another function": func(r *appdevice.DeviceRequest) { r.Function = "price" },
		"no function":      func(r *appdevice.DeviceRequest) { r.Function = "" },
		"no import":        func(r *appdevice.DeviceRequest) { r.Device = "cpu" },
		"no device":        func(r *appdevice.DeviceRequest) { r.Device = "tpu" },
	} {
		r := right
		change(&r)
		_, _, err := n.authorize(soon, r)
		if kind := outboard.KindOf(err); kind != outboard.Denied && kind != outboard.NotFound {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Functions of two tenants' apps never share a name, and so a cache of kernels.
func TestProgramName(t *testing.T) {
	r := appdevice.DeviceRequest{App: "shop", Function: "cart"}
	if tea, coffee := programName("tea", r), programName("coffee", r); tea != "tea/shop/cart" || coffee != "coffee/shop/cart" {
		t.Errorf("got %q and %q", tea, coffee)
	}
}

func TestLeaseQuota(t *testing.T) {
	var l tenantQuota
	for range maxTenantLeases {
		if !l.acquire("tea", maxTenantLeases) {
			t.Fatal("it is refused too early")
		}
	}
	if l.acquire("tea", maxTenantLeases) || !l.acquire("coffee", maxTenantLeases) {
		t.Error("the bound is not the tenant's own")
	}
	if l.release("tea"); !l.acquire("tea", maxTenantLeases) {
		t.Error("what was given back is not there")
	}
	for range maxTenantLeases {
		l.release("tea")
	}
	if l.release("coffee"); len(l.held) != 0 {
		t.Errorf("%v are left", l.held)
	}
}
