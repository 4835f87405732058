package ranks

import (
	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/train/threads"
	"github.com/outboard-run/outboard/internal/train/tiers"
)

// maxMeasured bounds the measurements of a rank for one decision, in bytes.
const maxMeasured = 4 << 20

// decided is the reply to a decide request: the bytes of the decision in the file of the request.
type decided struct {
	Bytes int `json:"bytes"`
}

// decide makes a decision of the node for one rank. The file of the request has the rank's
// measurements, as JSON, which the decision replaces.
func (m *member) decide(msg *ipc.Message, r *request) error {
	const op = "decide"
	f := msg.File()
	if f == nil {
		return outboard.Errorf(outboard.Invalid, op, "no file")
	}
	defer f.Close()
	memory, err := mapMemory(f)
	if err != nil {
		return err
	}
	defer unmap(memory)
	measured, err := span(memory, 0, r.Bytes)
	if err != nil || r.Bytes > maxMeasured || r.Rank < 0 || r.Rank >= maxRanks {
		return outboard.Errorf(outboard.Invalid, op, "%d bytes of rank %d: want at most %d", r.Bytes, r.Rank, maxMeasured)
	}
	answer, description, err := m.server.decision(r.Subject, append([]byte(nil), measured...))
	if err != nil {
		return outboard.Errorf(outboard.Invalid, op, "%s: %w", r.Subject, err)
	}
	if len(answer) > len(memory) {
		return outboard.Errorf(outboard.Exhausted, op, "%d bytes for an answer of %d", len(memory), len(answer))
	}
	copy(memory, answer)
	// The rank does not wait for the report to people.
	err = m.conn.Reply(msg, decided{Bytes: len(answer)}, nil)
	if m.server.opts.Decided != nil {
		m.server.opts.Decided(Decision{Rank: r.Rank, Subject: r.Subject, Text: description})
	}
	return err
}

// A Decision describes, for people, a decision of the node for one rank. A later one about the same
// subject replaces it.
type Decision struct {
	Rank    int    `json:"rank"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// The subjects: the placement of saved tensors in the tiers of memory, the number of a rank's
// threads, and the time limit of its processes, which is reported only.
const (
	SubjectMemory  = "memory"
	SubjectThreads = "threads"
	SubjectLimit   = "stage limit"
)

// IsSubject reports whether a server decides about a subject, or reports it.
func IsSubject(subject string) bool {
	return subject == SubjectMemory || subject == SubjectThreads || subject == SubjectLimit
}

// decision decides about a subject. Only one decision is made at a time, so that the requests of
// ranks can't occupy more than one processor.
func (s *Server) decision(subject string, measured []byte) (answer []byte, description string, err error) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	switch subject {
	case SubjectMemory:
		return tiers.PlanJSON(measured)
	case SubjectThreads:
		return threads.NextJSON(measured)
	}
	return nil, "", outboard.Errorf(outboard.Protocol, "", "unknown subject %.40q", subject)
}
