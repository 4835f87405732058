package state

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// The layout of the table maps keys to subjects. In version 1 a key was one token of the subject,
// so that permissions could not name an owner; in version 2 each word of a key is a token. A node
// that keeps a copy upgrades the table when it opens it.

// authorityKey1 is the key of the authority in version 1, which every node could read.
const authorityKey1 = "config/authority"

// upgradeLayout rewrites the entries under subjects of version 1. Keys of a node's presence are
// dropped: nodes write them again, and their form has changed.
func upgradeLayout(ctx context.Context, s *State) error {
	type old struct {
		subject string
		entry   Entry
	}
	var all []old
	err := s.pages(ctx, directGet, keyPrefix+">", func(m *nats.Msg) (uint64, error) {
		e, err := decodeEntry(m)
		if subject := m.Header.Get("Nats-Subject"); strings.Contains(subject, "/") {
			all = append(all, old{subject, e})
		}
		return e.Revision, err
	})
	if err != nil || len(all) == 0 {
		return err
	}
	s.log.Info("the layout of the pool's state is upgraded", "keys", len(all))
	for _, o := range all {
		if err := upgradeKey(ctx, s, o.entry); err != nil {
			return fmt.Errorf("upgrade %s: %w", o.entry.Key, err)
		}
		if err := s.purge(ctx, streamName, o.subject, 0); err != nil {
			return fmt.Errorf("upgrade %s: %w", o.entry.Key, err)
		}
	}
	return nil
}

func upgradeKey(ctx context.Context, s *State, e Entry) error {
	part, _, _ := strings.Cut(e.Key, "/")
	switch {
	case e.Deleted || part == "leases" || part == "queue" || part == "services" || part == "nodes" || part == "endpoints":
		return nil
	case e.Key == authorityKey1:
		log, err := s.OpenLog(ctx, AuthorityLog, LogOptions{})
		if err == nil {
			_, err = log.Append(ctx, AuthorityKey, 0, e.Value)
		}
		if errors.Is(err, ErrConflict) {
			err = nil // It was stored before an interruption.
		}
		return err
	}
	none := uint64(0)
	_, err := s.write(ctx, e.Key, e.Value, writeOptions{ttl: e.ttl, rev: &none})
	if errors.Is(err, ErrConflict) {
		err = nil
	}
	return err
}
