package router

import (
	"maps"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/outboard-run/outboard/fabric/call"
)

// A table finds counters by name without a lock. Callers choose the names, so it is bounded:
// names above the limit share one entry.
type table[T any] struct {
	limit int
	fits  func(name string) bool // names that don't fit are counted as other
	make  func(name string) *T
	found atomic.Pointer[map[string]*T]
	mu    sync.Mutex
}

const otherName = "other"

// systemPrefix begins the names of services that are reserved for the system, and systemName counts
// its calls of services that are not served yet or any more, as while a node starts: a program has
// not caused them.
const (
	systemPrefix = "outboard."
	systemName   = "/outboard/other"
)

func newTable[T any](limit int, fits func(string) bool, make func(name string) *T) *table[T] {
	t := &table[T]{limit: limit, fits: fits, make: make}
	t.found.Store(&map[string]*T{})
	return t
}

func (t *table[T]) of(name string) *T {
	if v := (*t.found.Load())[name]; v != nil {
		return v
	}
	return t.add(name)
}

func (t *table[T]) add(name string) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := *t.found.Load()
	if found[name] == nil && (len(found) >= t.limit || !t.fits(name)) {
		name = otherName
	}
	if v := found[name]; v != nil {
		return v
	}
	found = maps.Clone(found)
	// The name may lie in memory that belongs to its call.
	name = strings.Clone(name)
	found[name] = t.make(name)
	t.found.Store(&found)
	return found[name]
}

func (t *table[T]) all() map[string]*T { return *t.found.Load() }

// stats are the router's counters.
type stats struct {
	methods *table[method]
	peers   *table[peer]

	retries, hedges, mirrors, dropped atomic.Uint64
}

func newStats(methods, peers int) *stats {
	return &stats{
		methods: newTable(methods, isMethod, newMethod),
		peers:   newTable(peers, isName, func(string) *peer { return new(peer) }),
	}
}

func (s *stats) peerOf(h *call.Head) *peer {
	if h.Peer != "" {
		return s.peers.of(h.Peer)
	}
	return s.peers.of(h.Tenant)
}

// peer counts the calls of one caller.
type peer struct{ good, bad atomic.Uint64 }

func (p *peer) record(err error) {
	if err == nil {
		p.good.Add(1)
	} else {
		p.bad.Add(1)
	}
}

// method counts the calls of one method.
type method struct {
	service, name string
	inFlight      atomic.Int64
	codes         [codes.Unauthenticated + 2]atomic.Uint64 // the last: codes unknown to gRPC
	sent          atomic.Uint64                            // bytes to callees
	received      atomic.Uint64
	took          atomic.Int64 // the sum, in ns
	times         [len(bounds) + 1]atomic.Uint64
	windows       [2]window
	acted         *table[atomic.Uint64]
}

// bounds are the bucket bounds of the histogram of call durations.
var bounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond,
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// maxCountedName bounds a name in bytes: thousands are kept, and are labels of metrics.
const maxCountedName = 1 << 10

func isName(name string) bool { return len(name) <= maxCountedName && utf8.ValidString(name) }

// isMethod reports whether a name has the form "/service/method": no two such names have the same
// labels.
func isMethod(name string) bool {
	return isName(name) && strings.HasPrefix(name, "/") && strings.Count(name, "/") == 2
}

func newMethod(name string) *method {
	h := call.Head{Method: name}
	counter := func(string) *atomic.Uint64 { return new(atomic.Uint64) }
	return &method{service: h.Service(), name: h.Name(), acted: newTable(64, utf8.ValidString, counter)}
}

// record counts a call that has ended.
func (m *method) record(code codes.Code, took time.Duration, now time.Time) {
	m.codes[min(int(code), len(m.codes)-1)].Add(1)
	m.took.Add(int64(took))
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	m.times[i].Add(1)
	m.window(now).record(code, took)
}

// countBytes counts message bytes as they pass.
func (m *method) countBytes(sent, received int, now time.Time) {
	w := m.window(now)
	if sent > 0 {
		m.sent.Add(uint64(sent))
		w.sent.Add(uint64(sent))
	}
	if received > 0 {
		m.received.Add(uint64(received))
		w.received.Add(uint64(received))
	}
}

// windowLength is the length of a window. A live row covers between one and two windows.
const windowLength = 5 * time.Second

// window counts the calls of one interval. A method's two windows alternate.
type window struct {
	number         atomic.Int64 // number of the interval since 1970
	mu             sync.Mutex   // for reset
	calls, errors  atomic.Uint64
	sent, received atomic.Uint64
	times          [buckets]atomic.Uint32
}

// window returns the window of the current interval, and resets it if it has counts of an earlier
// interval. Calls counted during the reset may be missed.
func (m *method) window(now time.Time) *window {
	number := now.UnixNano() / int64(windowLength)
	w := &m.windows[number&1]
	if w.isStale(number) {
		w.reset(number)
	}
	return w
}

// isStale reports whether the window's counts are of an interval before number, or of one that came
// before since the clock was set back. A call may count with a time just before that of another call.
func (w *window) isStale(number int64) bool {
	have := w.number.Load()
	return have < number || have > number+2
}

func (w *window) reset(number int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isStale(number) {
		return
	}
	w.calls.Store(0)
	w.errors.Store(0)
	w.sent.Store(0)
	w.received.Store(0)
	for i := range w.times {
		w.times[i].Store(0)
	}
	w.number.Store(number)
}

func (w *window) record(code codes.Code, took time.Duration) {
	w.calls.Add(1)
	if code != codes.OK {
		w.errors.Add(1)
	}
	w.times[bucketOf(took)].Add(1)
}

// The buckets of a window: eight for each doubling, from 1 us to over two minutes;
// so a value is known within an eighth.
const (
	bucketBits = 3
	buckets    = 28 << bucketBits
)

// bucketOf returns the bucket of a duration: the highest bit of its microseconds and the three bits
// after it.
func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < 1<<bucketBits {
		return int(us)
	}
	high := bits.Len64(us) - 1 - bucketBits
	return min(high<<bucketBits+int(us>>high), buckets-1)
}

// bucketEnd returns the upper bound of a bucket.
func bucketEnd(i int) time.Duration {
	if i < 1<<bucketBits {
		return time.Duration(i+1) * time.Microsecond
	}
	high := i>>bucketBits - 1
	return time.Duration((uint64(i&(1<<bucketBits-1))+(1<<bucketBits)+1)<<high) * time.Microsecond
}
