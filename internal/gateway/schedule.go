package gateway

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A Schedule is when something happens, to the minute.
type Schedule struct {
	minutes, hours, days, months, weekdays uint64 // a bit for each number
	// eitherDay: days and weekdays are both restricted, and one of them is enough.
	eitherDay bool
}

// aliases are the schedules that have a name.
var aliases = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// A span is what one field of a schedule may have.
type span struct {
	name     string
	min, max int
	words    []string // for min, min+1, ...
}

var spans = [5]span{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"weekday", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// ParseSchedule reads a crontab's five fields: minute, hour, day of the month, month,
// weekday (0 and 7 are Sunday). A field is *, a number or a name, a range (1-5), any
// of these with a step (*/15), or a list of them. If both days are restricted one of
// them is enough. @hourly, @daily, @weekly, @monthly and @yearly are short for some.
func ParseSchedule(text string) (Schedule, error) {
	fields := strings.Fields(text)
	if long, ok := aliases[text]; ok {
		fields = strings.Fields(long)
	}
	if len(fields) != len(spans) {
		return Schedule{}, fmt.Errorf("schedule %q: want five fields like \"*/15 8-18 * * mon-fri\", or one of @hourly, @daily, @weekly, @monthly, @yearly", text)
	}
	var sets [5]uint64
	for i, f := range fields {
		set, err := spans[i].parse(strings.ToLower(f))
		if err != nil {
			return Schedule{}, fmt.Errorf("schedule %q: %w", text, err)
		}
		sets[i] = set
	}
	s := Schedule{minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3], weekdays: sets[4]}
	if s.weekdays&(1<<7) != 0 {
		s.weekdays |= 1
	}
	s.eitherDay = !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*")
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, fmt.Errorf("schedule %q: there is no such day", text)
	}
	return s, nil
}

func (s *span) parse(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		bits, err := s.parsePart(part)
		if err != nil {
			return 0, fmt.Errorf("the %s %q: %w", s.name, part, err)
		}
		set |= bits
	}
	return set, nil
}

func (s *span) parsePart(part string) (uint64, error) {
	rangeText, stepText, stepped := strings.Cut(part, "/")
	step := 1
	if stepped {
		n, err := strconv.Atoi(stepText)
		if err != nil || n < 1 || n > s.max {
			return 0, fmt.Errorf("want a step from 1 to %d", s.max)
		}
		step = n
	}
	low, high, err := s.parseRange(rangeText, stepped)
	if err != nil {
		return 0, err
	}
	var set uint64
	for n := low; n <= high; n += step {
		set |= 1 << n
	}
	return set, nil
}

func (s *span) parseRange(text string, stepped bool) (low, high int, err error) {
	if text == "*" {
		return s.min, s.max, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if low, err = s.number(first); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		high, err = s.number(last)
	case stepped:
		high = s.max
	default:
		high = low
	}
	if err == nil && high < low {
		err = fmt.Errorf("%d is before %d", high, low)
	}
	return low, high, err
}

func (s *span) number(text string) (int, error) {
	for i, word := range s.words {
		if text == word {
			return s.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < s.min || n > s.max || text[0] == '+' {
		return 0, fmt.Errorf("want a number from %d to %d", s.min, s.max)
	}
	return n, nil
}

// horizon is how far a schedule is looked for: 29 February may be 8 years away.
const horizon = 9

// Next is the first time of the schedule after t, in t's zone. It is zero when there
// is none. A time that a change of clocks leaves out does not happen; one that comes
// twice happens once.
func (s Schedule) Next(after time.Time) time.Time {
	zone := after.Location()
	local := after.In(zone)
	last := local.Year() + horizon
	for day := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC); day.Year() <= last; day = day.AddDate(0, 0, 1) {
		if !s.onDay(day) {
			continue
		}
		if t, ok := s.nextOn(day, after, zone); ok {
			return t
		}
	}
	return time.Time{}
}

func (s Schedule) onDay(day time.Time) bool {
	if s.months>>day.Month()&1 == 0 {
		return false
	}
	byDay, byWeekday := s.days>>day.Day()&1 == 1, s.weekdays>>day.Weekday()&1 == 1
	if s.eitherDay {
		return byDay || byWeekday
	}
	return byDay && byWeekday
}

// nextOn looks on one day of the calendar.
func (s Schedule) nextOn(day, after time.Time, zone *time.Location) (time.Time, bool) {
	for hours := s.hours; hours != 0; hours &= hours - 1 {
		hour := bits.TrailingZeros64(hours)
		for minutes := s.minutes; minutes != 0; minutes &= minutes - 1 {
			minute := bits.TrailingZeros64(minutes)
			t := time.Date(day.Year(), day.Month(), day.Day(), hour, minute, 0, 0, zone)
			if t.After(after) && t.Hour() == hour && t.Minute() == minute {
				return t, true
			}
		}
	}
	return time.Time{}, false
}
