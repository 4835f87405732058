package state

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// A versioned value is the history of an app or a model that package versions stores: each version
// names the node that wrote it, and an app's tenant or a model's aliases.
type versioned struct {
	Versions []version `json:"versions"`
}

type version struct {
	Number int    `json:"number"`
	By     string `json:"by"`
	App    struct {
		Name   string `json:"app"`
		Tenant string `json:"tenant"`
	} `json:"app"`
	Config struct {
		Aliases []string `json:"aliases"`
	} `json:"config"`
}

// last returns the last version, the zero value for none.
func (v versioned) last() version {
	if len(v.Versions) == 0 {
		return version{}
	}
	return v.Versions[len(v.Versions)-1]
}

// isOf reports whether an app is of a tenant, "" for any. A removed app is of every tenant.
func (v versioned) isOf(tenant string) bool {
	return tenant == "" || len(v.Versions) == 0 || v.last().App.Tenant == tenant
}

// mayVersion decides whether a node that keeps no copy of the table may write a version: of a new
// object, or of one whose last version it wrote itself. The write must name the revision that it
// replaces, at which mayVersion reads the object.
func (l guardedServer) mayVersion(p permissions, key string, m guard.Message) error {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return p.refuse("write without a revision", m.Subject)
	}
	replaces, err := strconv.ParseUint(header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if err != nil || header.Get(jetstream.ExpectedLastSubjSeqSubjHeader) != "" || header.Get(opHeader) != "" {
		return p.refuse("write without a revision", m.Subject)
	}
	var next versioned
	if json.Unmarshal(m.Body, &next) != nil {
		return p.refuse("write what is no version", m.Subject)
	}
	if by := next.last().By; by != "" && by != p.node {
		return p.refuse("write in the name of another node", m.Subject)
	}
	now, err := l.versionsAt(m.Subject, replaces)
	switch owner := now.last().By; {
	case err != nil:
		return err
	case !now.isOf(p.tenant) || !next.isOf(p.tenant):
		return p.refuse("change an app of another tenant", m.Subject)
	case owner != "" && owner != p.node && !p.keeper:
		return outboard.Errorf(outboard.Denied, "", // the writer's error names the key
			"node %s wrote its last version: change it there, or on a node that keeps the pool's state", owner)
	}
	name, isModel := strings.CutPrefix(key, modelsPrefix)
	switch {
	case p.keeper || len(next.Versions) == 0:
		return nil
	case isModel:
		return l.mayName(p, name, next.last().Config.Aliases)
	case p.tenant == "":
		return l.mayAddTenants(p, next.Versions)
	}
	return nil
}

// modelsPrefix precedes the name of a model in its key.
const modelsPrefix = "models/"

// mayName decides whether a node that keeps no copy of the table may give its model a name and
// aliases. None may be an alias of another node's model, since requests for the alias could then go to
// the node's own model.
func (l guardedServer) mayName(p permissions, name string, aliases []string) error {
	models, err := subjectBelow(modelsPrefix)
	if err != nil {
		return err
	}
	wanted := map[string]bool{name: true}
	for _, alias := range aliases {
		wanted[alias] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return l.pages(ctx, directGet, models, func(m *nats.Msg) (uint64, error) {
		e, err := decodeEntry(m)
		if err != nil || e.Deleted || e.Key == modelsPrefix+name {
			return e.Revision, err
		}
		var other versioned
		if err := json.Unmarshal(e.Value, &other); err != nil || other.last().By == p.node {
			return e.Revision, nil //nolint:nilerr // nodes ignore a malformed record
		}
		for _, alias := range other.last().Config.Aliases {
			if wanted[alias] {
				return e.Revision, outboard.Errorf(outboard.Denied, "",
					"%q is an alias of the model %s, which node %s pushed: choose another name, or push on a node that keeps the pool's state",
					alias, strings.TrimPrefix(e.Key, modelsPrefix), other.last().By)
			}
		}
		return e.Revision, nil
	})
}

// maxTrimmed is how many bytes the grants of a holder may have after a write of the device's node, if
// they had fewer: the grants that are left may be written in another form.
const maxTrimmed = 16 << 10

// mayTrim decides whether the node of a device may replace the grants of another holder: it removes void
// ones. They count for the holder, so there must be some, and their size does not grow.
func (l guardedServer) mayTrim(p permissions, m guard.Message) error {
	found, err := l.latest(m.Subject)
	switch {
	case err != nil:
		return err
	case found.Seq == 0:
		return p.refuse("grant in the name of another node", m.Subject)
	case len(m.Body) > max(len(found.Data), maxTrimmed):
		return p.refuse("enlarge the grants of another node", m.Subject)
	}
	return nil
}

// latest returns the last message with a subject in the table, the zero value for none.
func (l guardedServer) latest(subject string) (leaderMsg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	var found leaderMsg
	err := l.retry(ctx, func(ctx context.Context) (err error) {
		found, err = l.leaderGet(ctx, streamName, leaderQuery{LastBySubject: subject})
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return leaderMsg{}, nil
	}
	return found, err
}

// versionsAt returns a value at a revision, the zero value for revision 0. It also returns the zero
// value if the value has a later revision: the server refuses a write that does not replace the
// last.
func (l guardedServer) versionsAt(subject string, revision uint64) (versioned, error) {
	found, err := l.latest(subject)
	switch {
	case err == nil && found.Seq < revision:
		return versioned{}, outboard.Errorf(outboard.Denied, "the pool's state", "there is no revision %d yet", revision)
	case err == nil && (found.Seq > revision || len(found.Data) == 0):
		return versioned{}, nil
	}
	var now versioned
	if err == nil {
		err = json.Unmarshal(found.Data, &now)
	}
	return now, err
}
