package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// A pool on a NATS cluster of three that is not ours, with accounts: programs run, and go on
// running and leasing when one of its servers ends.
func TestPoolOnForeignNATS(t *testing.T) {
	beside(t)
	theirs := natsAccounts(t)
	servers := natsCluster(t, theirs)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	nats := []string{"--nats", strings.Join(urls, ","), "--creds", theirs.creds}
	r := own(t, rig.Options{Loopback: true, Nodes: []rig.Spec{
		{Name: "harbour", Args: nats},
		{Name: "dinghy", Devices: "none", Args: nats, Alone: true},
	}})
	for _, name := range []string{"harbour", "dinghy"} {
		if _, err := r.Node(name).Output(t.Context(), "devices", "-o", "json"); err != nil {
			t.Error(err)
		}
	}
	running := startBlocked(t, through(r, "dinghy", "--memory", "64MiB"), "read")
	servers[0].Shutdown()
	eventually(t, "programs lease again", func() bool {
		p := suite.Program{Args: []string{"clinfo", "-l"}, Limit: patience}
		res := p.Run(t.Context(), through(r, "dinghy", "--memory", "64MiB"), "")
		return res.Err == nil && strings.Contains(res.Stdout, "Device #0")
	})
	eventually(t, "the session that ran before is there, alone", func() bool {
		return len(list(t, r.Node("harbour"), "sessions")) == 1
	})
	if running.stderrText() != "" {
		t.Errorf("the running session noticed: %s", running.stderrText())
	}
}

// accounts are those of a cluster whose servers authenticate users.
type accounts struct {
	operator *jwt.OperatorClaims
	system   string
	resolver natsserver.AccountResolver
	creds    string // the file of a user with access to JetStream
}

func natsAccounts(t *testing.T) accounts {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		pair, err := create()
		must(err)
		public, err := pair.PublicKey()
		must(err)
		return pair, public
	}
	signer, operator := key(nkeys.CreateOperator)
	a := accounts{operator: jwt.NewOperatorClaims(operator), resolver: &natsserver.MemAccResolver{}}
	account := func(jetStream bool) (nkeys.KeyPair, string) {
		pair, public := key(nkeys.CreateAccount)
		claims := jwt.NewAccountClaims(public)
		if jetStream {
			claims.Limits.DiskStorage, claims.Limits.MemoryStorage = jwt.NoLimit, jwt.NoLimit
		}
		text, err := claims.Encode(signer)
		must(err)
		must(a.resolver.Store(public, text))
		return pair, public
	}
	_, a.system = account(false)
	owner, _ := account(true)
	user, public := key(nkeys.CreateUser)
	text, err := jwt.NewUserClaims(public).Encode(owner)
	must(err)
	seed, err := user.Seed()
	must(err)
	creds, err := jwt.FormatUserConfig(text, seed)
	must(err)
	a.creds = filepath.Join(t.TempDir(), "user.creds")
	must(os.WriteFile(a.creds, creds, 0o600))
	return a
}

// natsCluster runs three NATS servers with JetStream.
func natsCluster(t *testing.T, accounts accounts) []*natsserver.Server {
	t.Helper()
	var servers []*natsserver.Server
	var routes []string
	for i := range 3 {
		port := statetest.FreePort(t)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
		server, err := natsserver.NewServer(&natsserver.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(),
			Cluster: natsserver.ClusterOpts{Name: "theirs", Host: "127.0.0.1", Port: port},
			Routes:  natsserver.RoutesFromStr(strings.Join(routes, ",")),

			TrustedOperators: []*jwt.OperatorClaims{accounts.operator}, SystemAccount: accounts.system, AccountResolver: accounts.resolver,
		})
		if err != nil {
			t.Fatal(err)
		}
		server.Start()
		t.Cleanup(func() {
			server.Shutdown()
			server.WaitForShutdown()
		})
		if !server.ReadyForConnections(time.Minute) {
			t.Fatal("the NATS server does not start")
		}
		servers = append(servers, server)
	}
	return servers
}
