package lograte

import (
	"context"
	"log/slog"
	"sync"
)

// maxMessages bounds the messages that a handler has a Limit of their own for. Messages are constants
// of this program, so no more are expected.
const maxMessages = 1024

// NewHandler returns a handler that bounds the warnings and errors of each message. The next record
// of a message whose records were dropped has their number.
func NewHandler(next slog.Handler) slog.Handler {
	return &handler{next: next, limits: &limits{of: map[string]*Limit{}}}
}

// Unlimited returns the log below that of NewHandler, for a source that has a Limit of its own: its
// records take nothing from those of the same message.
func Unlimited(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*handler); ok {
		return slog.New(h.next)
	}
	return log
}

type handler struct {
	next   slog.Handler
	limits *limits
}

// limits are the Limits of a log, by its messages; that of "" is for all others.
type limits struct {
	mu sync.Mutex
	of map[string]*Limit
}

func (l *limits) find(message string) *Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.of[message]; found != nil {
		return found
	}
	if len(l.of) >= maxMessages {
		message = ""
	}
	if l.of[message] == nil {
		l.of[message] = &Limit{}
	}
	return l.of[message]
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.next.Handle(ctx, r)
	}
	dropped, ok := h.limits.find(r.Message).Allow(r.Time)
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("dropped", dropped))
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{next: h.next.WithAttrs(attrs), limits: h.limits}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), limits: h.limits}
}
