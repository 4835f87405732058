package state

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
	"github.com/outboard-run/outboard/internal/quota"
)

const (
	// messageOverhead is the charge for a stored message beside its subject, header and body, in
	// bytes.
	messageOverhead = 64
	// tickCharge is the charge for a tick, in bytes: every watcher of the table keeps each tick in
	// memory, whatever its size.
	tickCharge = 8 << 10
	// maxKeyHeader bounds the headers of the message of a bucket's key, in bytes.
	maxKeyHeader = 128
	// maxTick bounds the value of a tick, in bytes.
	maxTick = 256

	// maxStreams bounds the logs and buckets of a tenant: each is a Raft group on three nodes.
	maxStreams = 1000
	// maxTenants bounds the tenants that are counted: other nodes choose their names.
	maxTenants = 10_000

	// measurePause is the least time between two measurements of a tenant's histories. Each
	// measurement reads all of them.
	measurePause = 30 * time.Second
	measureLimit = 5 * time.Minute
)

// stores accounts for the data of tenants in the state, by the messages that pass this node's
// guards. A message is charged before it is stored, even if the server then refuses it, and
// replaced or removed data is not credited. So the histories of a tenant that has used three
// quarters of its limit are measured from time to time, and its buckets, whose sizes the server
// knows, whenever a sixteenth of the limit was written to them. The limit is that of the whole
// pool. Messages that other nodes' guards admit between two measurements come on top.
type stores struct {
	limit outboard.Bytes
	log   *slog.Logger
	// spawn runs a measurement until the state ends.
	spawn func(func(context.Context))
	// measure returns how many bytes a tenant keeps in logs and in the table, and measureBuckets
	// how many in buckets.
	measure        func(ctx context.Context, tenant string, logs []string) (int64, error)
	measureBuckets func(ctx context.Context, buckets []string) (int64, error)

	mu  sync.Mutex
	all map[string]*tenantStore
}

// tenantStore is the account of one tenant.
type tenantStore struct {
	stores *stores
	tenant string // as a word of a subject
	budget *quota.Budget

	mu sync.Mutex
	// streams are the logs and buckets that the tenant was seen to use.
	streams map[string]bool
	// owed has, by bucket, how many bytes of the messages that follow a commit's record were charged
	// with the record. The limit can't be reached between the two: no reader of the bucket could
	// complete the commit.
	owed map[string]int64
	// histories and buckets are the budget's two parts.
	histories, buckets share
}

// share is the account of a part of a tenant's data.
type share struct {
	charged   int64
	written   int64 // since the last measurement
	measuring bool
	measured  time.Time // the end of the last measurement
}

func newStores(s *State, limit outboard.Bytes) *stores {
	if limit == 0 {
		limit = quota.Default(quota.Store)
	}
	return &stores{
		limit: limit, log: s.log, all: make(map[string]*tenantStore), measure: measurer{s}.histories, measureBuckets: measurer{s}.buckets,
		spawn: func(f func(context.Context)) {
			s.running.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), measureLimit)
				defer cancel()
				ended := make(chan struct{})
				defer close(ended)
				go func() {
					select {
					case <-s.done:
						cancel()
					case <-ended:
					}
				}()
				f(ctx)
			})
		},
	}
}

// of returns the account of a tenant, nil if there are too many.
func (s *stores) of(tenant string) *tenantStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	usage := s.all[tenant]
	if usage == nil && len(s.all) < maxTenants {
		usage = &tenantStore{stores: s, tenant: tenant, budget: quota.NewBudget(quota.Store, s.limit), streams: map[string]bool{}, owed: map[string]int64{}}
		s.all[tenant] = usage
	}
	return usage
}

// held returns the bytes that each tenant, as a word of a subject, is charged.
func (s *stores) held() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[string]int64, len(s.all))
	for tenant, one := range s.all {
		held[tenant] = one.budget.Held()
	}
	return held
}

// A charge says how a message counts against the limit.
type charge int

const (
	// begins is a message that begins something new, such as an execution: refused at the limit.
	begins charge = iota
	// continues is a message that continues what was begun: it may use an eighth more, so that a
	// running execution can still record how it ends.
	continues
	// removes is a message that frees space, but is stored itself: it may use as much again.
	removes
)

// use records that a tenant uses a stream, and refuses a stream beyond maxStreams.
func (s *stores) use(tenant, stream string) error {
	usage := s.of(tenant)
	if usage == nil {
		return outboard.Errorf(outboard.Exhausted, "the pool's state", "it counts what %d tenants keep, and no more", maxTenants)
	}
	usage.mu.Lock()
	defer usage.mu.Unlock()
	if !usage.streams[stream] && len(usage.streams) >= maxStreams {
		return outboard.Errorf(outboard.Exhausted, "the pool's state", "a tenant has %d buckets at most: remove the buckets of apps that are gone", maxStreams)
	}
	usage.streams[stream] = true
	usage.measureSometimes(false)
	return nil
}

// reserve charges a message to a tenant, or refuses it.
func (s *stores) reserve(tenant string, size int64, kind charge, isBucket bool) error {
	usage := s.of(tenant)
	if usage == nil {
		return outboard.Errorf(outboard.Exhausted, "the pool's state", "it counts what %d tenants keep, and no more", maxTenants)
	}
	var err error
	switch kind {
	case begins:
		err = usage.budget.TryReserve(size)
	case continues:
		err = usage.budget.TryReserveBeyond(size, int64(s.limit)/8)
	case removes:
		err = usage.budget.TryReserveBeyond(size, int64(s.limit))
	}
	usage.mu.Lock()
	defer usage.mu.Unlock()
	part := &usage.histories
	if isBucket {
		part = &usage.buckets
	}
	if err == nil {
		part.charged += size
		part.written += size
	}
	usage.measureSometimes(err != nil)
	return err
}

// addOwed records that the messages that follow a commit's record were charged with it. A record that
// the server refuses was charged as well, so a bucket is owed one commit at most.
func (s *stores) addOwed(tenant, bucket string, size int64) {
	if usage := s.of(tenant); usage != nil {
		usage.mu.Lock()
		defer usage.mu.Unlock()
		usage.owed[bucket] = max(usage.owed[bucket], size)
	}
}

// takeOwed reports whether a message was charged with the record of its commit.
func (s *stores) takeOwed(tenant, bucket string, size int64) bool {
	usage := s.of(tenant)
	if usage == nil {
		return false
	}
	usage.mu.Lock()
	defer usage.mu.Unlock()
	if usage.owed[bucket] < size {
		return false
	}
	usage.owed[bucket] -= size
	return true
}

// measureSometimes begins the measurements that are due. The caller holds the lock.
func (t *tenantStore) measureSometimes(refused bool) {
	limit, now := int64(t.stores.limit), time.Now()
	isFull := refused || t.budget.Held() > limit/4*3
	h := &t.histories
	if !h.measuring && (h.measured.IsZero() || isFull && now.Sub(h.measured) >= measurePause) {
		h.measuring = true
		t.stores.spawn(func(ctx context.Context) {
			t.remeasure(ctx, h, func(logs, _ []string) (int64, error) { return t.stores.measure(ctx, t.tenant, logs) })
		})
	}
	b := &t.buckets
	if !b.measuring && (b.measured.IsZero() || b.written > limit/16 || refused && now.Sub(b.measured) >= time.Second) {
		b.measuring = true
		t.stores.spawn(func(ctx context.Context) {
			t.remeasure(ctx, b, func(_, buckets []string) (int64, error) { return t.stores.measureBuckets(ctx, buckets) })
		})
	}
}

// remeasure replaces the charge of a share by its measured size. Messages charged meanwhile may be
// counted twice until the next measurement.
func (t *tenantStore) remeasure(ctx context.Context, part *share, measure func(logs, buckets []string) (int64, error)) {
	var logs, buckets []string
	t.mu.Lock()
	for name := range t.streams {
		if strings.HasPrefix(name, logStreamPrefix) {
			logs = append(logs, name)
		} else {
			buckets = append(buckets, name)
		}
	}
	before := part.charged
	part.written = 0
	t.mu.Unlock()
	total, err := measure(logs, buckets)
	if err != nil && ctx.Err() == nil {
		t.stores.log.Warn("what a tenant keeps in the pool's state can't be measured", "tenant", keyOf(t.tenant), "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if part.measuring, part.measured = false, time.Now(); err == nil {
		part.charged += total - before
		t.budget.Adjust(total - before)
	}
}

// A measurer reads how much tenants keep in a state.
type measurer struct{ *State }

// histories reads how many bytes a tenant keeps in logs and in the table.
func (s measurer) histories(ctx context.Context, tenant string, logs []string) (total int64, err error) {
	for _, stream := range logs {
		filter := logSubjectPrefix + strings.TrimPrefix(stream, logStreamPrefix) + "." + tenant + ".>"
		n, err := s.sizeOf(ctx, stream, filter, nil)
		if err != nil {
			return 0, err
		}
		total += n
	}
	ticks, err := s.sizeOf(ctx, streamName, keyPrefix+"ticks."+tenant+".>", func(*nats.Msg) int64 { return tickCharge })
	if err != nil {
		return 0, err
	}
	apps, err := s.sizeOf(ctx, streamName, keyPrefix+"apps.>", func(m *nats.Msg) int64 {
		var all versioned
		if json.Unmarshal(m.Data, &all) != nil || len(all.Versions) == 0 || all.last().App.Tenant != keyOf(tenant) {
			return 0
		}
		return messageSize(m.Header.Get(subjectHeader), nil, m.Data)
	})
	return total + ticks + apps, err
}

// sizeOf adds up the sizes of the messages of a stream. A nil size stands for messageSize.
func (s measurer) sizeOf(ctx context.Context, stream, filter string, size func(*nats.Msg) int64) (total int64, err error) {
	err = s.pages(ctx, directGetPrefix+stream, filter, func(m *nats.Msg) (uint64, error) {
		if size == nil {
			total += messageSize(m.Header.Get(subjectHeader), nil, m.Data)
		} else {
			total += size(m)
		}
		stored, err := storedOf(m)
		return stored.seq, err
	})
	return total, err
}

// buckets returns the size of buckets, in bytes.
func (s measurer) buckets(ctx context.Context, buckets []string) (total int64, err error) {
	for _, stream := range buckets {
		err := s.retry(ctx, func(ctx context.Context) error {
			info, err := s.js.Stream(ctx, stream)
			switch {
			case err == nil:
				total += int64(min(info.CachedInfo().State.Bytes, 1<<62))
			case errors.Is(err, jetstream.ErrStreamNotFound):
				err = nil // It is not created yet.
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}

func messageSize(subject string, header, body []byte) int64 {
	return int64(len(subject) + len(header) + len(body) + messageOverhead)
}

// use records that a client uses a stream of a tenant.
func (p permissions) use(stream string) error {
	tenant := tenantOfBucket(stream)
	if tenant == "" { // a log, which all tenants share
		tenant, _ = tokensOf(p.tenant)
	}
	if p.stores == nil || tenant == "" {
		return nil
	}
	return p.stores.use(tenant, stream)
}

// chargeLog charges a record of a log: outboard.log.NAME.TENANT.KEY...
func (p permissions) chargeLog(words []string, m guard.Message) error {
	if p.stores == nil {
		return nil
	}
	if err := p.stores.use(words[3], logStreamPrefix+words[2]); err != nil {
		return err
	}
	kind := begins
	if header, err := nats.DecodeHeadersMsg(m.Header); err == nil && header.Get(jetstream.ExpectedLastSubjSeqHeader) != "0" {
		kind = continues
	}
	return p.stores.reserve(words[3], messageSize(m.Subject, m.Header, m.Body), kind, false)
}

// chargeBucket charges a message of a bucket: the record of a commit, with the messages of keys that
// follow it, or one of these if the record passed another guard. A commit that only deletes may use
// more of the limit, and so may the messages that follow it.
func (p permissions) chargeBucket(bucket string, m guard.Message, isRecord bool) error {
	if p.stores == nil {
		return nil
	}
	stream := "KV_" + bucket
	if err := p.use(stream); err != nil {
		return err
	}
	tenant, size := tenantOfBucket(stream), messageSize(m.Subject, m.Header, m.Body)
	if isRecord {
		kind, owed := begins, int64(0)
		if r, err := decodeRecord(m.Body); err == nil {
			if onlyDeletes(r.changes) {
				kind = removes
			}
			for _, c := range r.changes {
				owed += messageSize("$KV."+bucket+"."+c.Key, nil, c.Value) + maxKeyHeader
			}
		}
		err := p.stores.reserve(tenant, size+owed, kind, true)
		if err == nil {
			p.stores.addOwed(tenant, stream, owed)
		}
		return err
	}
	if p.stores.takeOwed(tenant, stream, size) {
		return nil
	}
	kind := continues // Its commit's record passed another guard.
	if header, err := nats.DecodeHeadersMsg(m.Header); err == nil && header.Get(opHeader) == opDelete {
		kind = removes
	}
	return p.stores.reserve(tenant, size, kind, true)
}

// chargeTable charges a write of a tenant's process to the table: a tick, or a version of an app.
func (p permissions) chargeTable(words []string, m guard.Message) error {
	tenant, ok := tokensOf(p.tenant)
	if words[0] == "ticks" {
		if len(m.Body) > maxTick {
			return p.refuse("write a tick of that size", m.Subject)
		}
		tenant, ok = words[1], true
	}
	if p.stores == nil || !ok || tenant == "" {
		return nil
	}
	size := messageSize(m.Subject, m.Header, m.Body)
	if words[0] == "ticks" {
		size = tickCharge
	}
	return p.stores.reserve(tenant, size, begins, false)
}

func onlyDeletes(changes []KVChange) bool {
	for _, c := range changes {
		if !c.Deleted {
			return false
		}
	}
	return true
}

// tenantOfBucket returns the tenant of a bucket's stream, as a word of a subject, or "". The
// stream's name doubles the dashes of the tenant's name.
func tenantOfBucket(stream string) string {
	rest, ok := strings.CutPrefix(stream, streamName+"-")
	if !ok {
		return ""
	}
	var tenant strings.Builder
	for i := 0; i < len(rest); i++ {
		if rest[i] == '-' {
			if i+1 == len(rest) || rest[i+1] != '-' {
				break
			}
			i++
		}
		tenant.WriteByte(rest[i])
	}
	return tenant.String()
}
