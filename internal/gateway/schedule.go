package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is the times of a trigger. It is the same on all nodes.
type Schedule struct {
	times cron.Schedule // nil: at each multiple of every
	every time.Duration
}

// ParseSchedule parses a crontab's five fields, minute, hour, day of the month, month and weekday,
// or one of @hourly, @daily, @weekly, @monthly, @yearly and @every 10m. The times of the last are
// multiples of its duration since 1970 in UTC.
func ParseSchedule(text string) (Schedule, error) {
	if strings.Contains(text, "TZ=") {
		return Schedule{}, fmt.Errorf("schedule %q: the time zone stands beside it", text)
	}
	times, err := cron.ParseStandard(text)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w", text, err)
	}
	s := Schedule{times: times}
	if constant, ok := times.(cron.ConstantDelaySchedule); ok {
		s = Schedule{every: constant.Delay}
	}
	if s.Next(time.Unix(0, 0).UTC()).IsZero() {
		return Schedule{}, fmt.Errorf("schedule %q: there is no such day", text)
	}
	return s, nil
}

// Next returns the first time after t, in t's zone; zero if there is none. It searches in the periods
// between the changes of the zone's offset, one after the other, each of which is searched as in UTC: so
// a time of day that a change skips is left out, and one that comes twice is found twice. The search of
// package cron over a change at midnight leaves out the whole day, or does not end.
func (s Schedule) Next(t time.Time) time.Time {
	t = t.Round(0) // of the wall clock alone
	if s.times == nil {
		since := t.Sub(time.Unix(0, 0))
		return t.Add(s.every - since%s.every)
	}
	period, from := t, t
	for range maxPeriods {
		_, seconds := period.Zone()
		offset := time.Duration(seconds) * time.Second
		next := s.times.Next(from.UTC().Add(offset))
		if next.IsZero() {
			return next
		}
		at := next.Add(-offset).In(t.Location())
		_, end := period.ZoneBounds()
		if end.IsZero() || at.Before(end) {
			return at
		}
		period, from = end, end.Add(-1) // the end itself belongs to the next period
	}
	return time.Time{}
}

// maxPeriods bounds the periods that Next searches: zones have two in most years, and package cron
// searches five years.
const maxPeriods = 64
