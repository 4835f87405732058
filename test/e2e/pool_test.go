package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// A sharedPool is used by one test after the other; they do it no harm.
type sharedPool struct {
	once sync.Once
	rig  *rig.Rig
	err  error
	log  syncBuffer // what its nodes said
}

// sharedPools are two, so that tests which lease a device as a whole use both processors.
var sharedPools [2]sharedPool

func TestMain(m *testing.M) {
	flag.Parse()
	runsBeside()
	status := m.Run()
	_ = os.RemoveAll(scratch())
	for i := range sharedPools {
		if pool := sharedPools[i].rig; pool != nil {
			if err := pool.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "close a shared pool:", err)
				status = 1
			}
		}
	}
	os.Exit(status)
}

// binary is a copy of the program, so that a build meanwhile does not mix two.
func binary(t testing.TB) string {
	t.Helper()
	need.Require(t, "outboard", exists("../../bin/outboard"), "run `make build`")
	need.Require(t, "opencl", exists("/etc/OpenCL/vendors/pocl.icd"), "install pocl-opencl-icd")
	path, err := copied()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var copied = sync.OnceValues(func() (string, error) {
	program, err := os.ReadFile("../../bin/outboard")
	if err != nil {
		return "", err
	}
	path := filepath.Join(scratch(), "outboard")
	return path, os.WriteFile(path, program, 0o755)
})

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func start(t testing.TB, opts rig.Options) *rig.Rig {
	t.Helper()
	opts.Binary = cmp.Or(opts.Binary, binary(t))
	if opts.Dir == "" {
		var err error
		// Not t.TempDir: unix sockets lie in it, and their paths are short.
		if opts.Dir, err = os.MkdirTemp("", "outboard-e2e-"); err != nil {
			t.Fatal(err)
		}
	}
	if opts.Log == nil {
		opts.Log = logFile(t)
	}
	r, err := rig.Start(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// logFile collects what nodes say and shows it when the test fails. In the folder
// $OUTBOARD_TEST_LOG it stays.
func logFile(t testing.TB) *os.File {
	t.Helper()
	dir := os.Getenv("OUTBOARD_TEST_LOG")
	if dir == "" {
		dir = t.TempDir()
	}
	f, err := os.CreateTemp(dir, "nodes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if raw, err := os.ReadFile(f.Name()); err == nil && t.Failed() {
			t.Logf("the nodes said:\n%s", last(string(raw), 6000))
		}
		_ = f.Close()
	})
	return f
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// own starts a pool for one test.
func own(t testing.TB, opts rig.Options) *rig.Rig {
	t.Helper()
	r := start(t, opts)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// pair is harbour, with the devices, and dinghy, without.
func pair() []rig.Spec { return []rig.Spec{{Name: "harbour"}, {Name: "dinghy", Devices: "none"}} }

// withoutCache has nodes keep no compiled kernels. Compiling each kernel again after a session, for the
// next one, takes as long as the session: it is worth it only where programs have many.
func withoutCache(nodes []rig.Spec) []rig.Spec {
	for i := range nodes {
		nodes[i].Args = append(nodes[i].Args, "--sandbox", "cache=off")
	}
	return nodes
}

// shared returns the pool that the test, or the one that it is a part of, uses since sharesDevice.
func shared(t testing.TB) *rig.Rig {
	t.Helper()
	bin := binary(t)
	test, _, _ := strings.Cut(t.Name(), "/")
	used, ok := devicesUsed.Load(test)
	if !ok {
		t.Fatal("the test does not call sharesDevice")
	}
	pool := used.(*sharedPool)
	pool.once.Do(func() {
		dir, err := os.MkdirTemp("", "outboard-e2e-")
		if err != nil {
			pool.err = err
			return
		}
		nodes := pair()
		if !sharedCaches {
			nodes = withoutCache(nodes)
		}
		pool.rig, pool.err = rig.Start(context.Background(), rig.Options{Binary: bin, Dir: dir, Nodes: nodes, Log: &pool.log})
	})
	if pool.err != nil {
		t.Fatal(pool.err)
	}
	return pool.rig
}

// freeDevices has the shared pools whose device no test uses; devicesUsed has those of the others, by
// the test's name.
var (
	freeDevices = func() chan *sharedPool {
		free := make(chan *sharedPool, len(sharedPools))
		for i := range sharedPools {
			free <- &sharedPools[i]
		}
		return free
	}()
	devicesUsed sync.Map
)

// places has an entry for each test that runs.
var places chan struct{}

// runsBeside makes as many places as -parallel says. The tests count them themselves: a test that
// waits for the shared device needs none, where the testing package would count it.
func runsBeside() {
	parallel := flag.Lookup("test.parallel").Value
	places = make(chan struct{}, max(1, parallel.(flag.Getter).Get().(int)))
	if err := parallel.Set("1000"); err != nil {
		panic(err)
	}
}

// beside lets the test run beside others.
func beside(t *testing.T) {
	t.Helper()
	t.Parallel()
	occupyPlace(t)
}

// occupyPlace waits for a place until the test ends. The test's log says how long it ran, since the
// testing package counts the wait as well.
func occupyPlace(t *testing.T) {
	places <- struct{}{}
	began := time.Now()
	t.Cleanup(func() {
		t.Logf("ran for %.1f s", time.Since(began).Seconds())
		<-places
	})
}

// sharesDevice lets the test run beside those with a pool of their own, on a shared pool whose device
// no other test uses: most of them lease it as a whole.
func sharesDevice(t *testing.T) {
	t.Helper()
	t.Parallel()
	usePool(t, <-freeDevices)
}

// sharesDeviceFirst is sharesDevice for a test that takes long: it has a shared pool before others do,
// so that the suite does not wait for it at its end. There may be as many such tests as shared pools,
// since they hold their pools until other tests run beside them.
func sharesDeviceFirst(t *testing.T) {
	t.Helper()
	select {
	case pool := <-freeDevices:
		t.Parallel()
		usePool(t, pool)
	default:
		t.Fatal("more tests are first than there are shared pools")
	}
}

// usePool lets the test use a shared pool until it ends.
func usePool(t *testing.T, pool *sharedPool) {
	t.Helper()
	devicesUsed.Store(t.Name(), pool)
	said := len(pool.log.String())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the shared pool's nodes said:\n%s", last(pool.log.String()[said:], 6000))
		}
		devicesUsed.Delete(t.Name())
		freeDevices <- pool
	})
	occupyPlace(t)
}

// through runs commands on a device that the node borrows.
func through(r *rig.Rig, node string, flags ...string) suite.Launcher {
	return func(ctx context.Context, name string, args ...string) *exec.Cmd {
		run := append([]string{"run", "--timeout", patience.String()}, flags...)
		return r.Node(node).Command(ctx, append(append(run, "--", name), args...)...)
	}
}

// paths are the two ways to a device: over shared memory and over the network.
func paths(r *rig.Rig) map[string]suite.Launcher {
	return map[string]suite.Launcher{"shared memory": through(r, "harbour"), "network": through(r, "dinghy")}
}

// list asks a node for a table, over its socket: tests ask again and again until it is as they want.
func list(t testing.TB, n *rig.Node, what string) []map[string]any {
	t.Helper()
	text := getPage(t, n, "/v1/"+what)
	var rows []map[string]any
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
	return rows
}

// patience is how long a test waits for anything: far longer than a busy machine takes, so that only
// what never happens fails.
const patience = 3 * time.Minute

// eventually waits for a condition that other processes bring about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		case <-tick.C:
		}
	}
}

// descendants are the processes below pid.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		raw, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		var child, parent int
		_, _ = fmt.Sscan(filepath.Base(filepath.Dir(stat)), &child)
		_, after, _ := strings.Cut(string(raw), ") ")
		var state string
		_, _ = fmt.Sscan(after, &state, &parent)
		children[parent] = append(children[parent], child)
	}
	var all []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		all = append(all, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return all
}
