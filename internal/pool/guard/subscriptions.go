package guard

import (
	"strings"
	"sync"
)

// maxSubscriptions bounds the subscriptions of a connection: each takes memory of the server.
const maxSubscriptions = 1 << 16

// subscriptions are the subscriptions of one connection, by the ids that the client gave them.
type subscriptions struct {
	mu  sync.Mutex
	all map[string]*subscription
}

type subscription struct {
	subject string
	// delivered counts messages; at limit the server ends the subscription. 0 is no limit.
	delivered, limit int
}

// add adds a subscription, and returns false if the client has too many.
func (s *subscriptions) add(subject, sid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.all[sid]; !again && len(s.all) >= maxSubscriptions {
		return false
	}
	s.all[sid] = &subscription{subject: subject}
	return true
}

// end ends a subscription after limit messages in all, or now if limit is 0.
func (s *subscriptions) end(sid string, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subscription := s.all[sid]; subscription != nil && subscription.delivered < limit {
		subscription.limit = limit
		return
	}
	delete(s.all, sid)
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
		delete(s.all, sid)
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
