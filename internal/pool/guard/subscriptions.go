package guard

import (
	"fmt"
	"strings"
	"sync"
)

// maxSubscriptions bounds the subscriptions of a connection: each takes memory of the server.
const maxSubscriptions = 1 << 16

// maxCostly bounds the subscriptions of a connection that Rules call costly.
const maxCostly = 32

// subscriptions are the subscriptions of one connection, by the ids that the client gave them.
type subscriptions struct {
	held *holding

	mu     sync.Mutex
	all    map[string]*subscription
	costly int
}

type subscription struct {
	subject string
	costly  bool
	// delivered counts messages; at limit the server ends the subscription. 0 is no limit.
	delivered, limit int
}

// add adds a subscription, and returns an error if the client has too many.
func (s *subscriptions) add(subject, sid string, costly bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all[sid] != nil:
		return nil // The server keeps the one that it has.
	case len(s.all) >= maxSubscriptions:
		return fmt.Errorf("%w: more than %d subscriptions", errProtocol, maxSubscriptions)
	case costly && s.costly >= maxCostly:
		return fmt.Errorf("%w: more than %d subscriptions such as %s", errProtocol, maxCostly, subject)
	}
	added := &subscription{subject: subject, costly: costly}
	if err := s.held.reserve(added.charge()); err != nil {
		return err
	}
	s.all[sid] = added
	if costly {
		s.costly++
	}
	return nil
}

// charge returns what the client is charged for the subscription, in bytes.
func (s *subscription) charge() int {
	if s.costly {
		return costlyCharge
	}
	return subscriptionCharge
}

// remove removes a subscription. s.mu must be held.
func (s *subscriptions) remove(sid string) {
	one := s.all[sid]
	if one == nil {
		return
	}
	if one.costly {
		s.costly--
	}
	s.held.release(one.charge())
	delete(s.all, sid)
}

// end ends a subscription after limit messages in all, or now if limit is 0.
func (s *subscriptions) end(sid string, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subscription := s.all[sid]; subscription != nil && subscription.delivered < limit {
		subscription.limit = limit
		return
	}
	s.remove(sid)
}

// delivered counts a message.
func (s *subscriptions) delivered(sid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	subscription := s.all[sid]
	if subscription == nil {
		return
	}
	if subscription.delivered++; subscription.delivered == subscription.limit {
		s.remove(sid)
	}
}

// matching returns the ids of the subscriptions to a subject.
func (s *subscriptions) matching(subject string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for sid, one := range s.all {
		if matches(one.subject, subject) {
			ids = append(ids, sid)
		}
	}
	return ids
}

// matches reports whether a pattern, which may have wildcards, matches a subject.
func matches(pattern, subject string) bool {
	for {
		want, moreWanted, deeper := strings.Cut(pattern, ".")
		if want == ">" {
			return subject != ""
		}
		have, more, rest := strings.Cut(subject, ".")
		if want != "*" && want != have || deeper != rest {
			return false
		}
		if !deeper {
			return true
		}
		pattern, subject = moreWanted, more
	}
}
