package main

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
)

// A term defines the requests of students: request k is that of the student sK for the course k
// modulo courses. Some courses have few seats, so that many requests are refused.
type term struct {
	courses, scarce int // the first courses are scarce
	few, many       int // seats
}

func theTerm() term { return term{courses: 100, scarce: 10, few: 50, many: 10_000_000} }

func (t term) course(k int) string { return "c" + strconv.Itoa(k%t.courses) }

func (t term) seats(course int) int {
	if course < t.scarce {
		return t.few
	}
	return t.many
}

func path(t term, k int) string {
	return "/enrollment/courses/" + t.course(k) + "/students/" + student(k)
}

func student(k int) string { return "s" + strconv.Itoa(k) }

func requestID(k int) string { return "r" + strconv.Itoa(k) }

// answer returns the response to a request that got a seat, the same each time.
func (t term) answer(k int) string {
	return `{"course":"` + t.course(k) + `","student":"` + student(k) + `"}`
}

// An enroller sends requests for seats to the app.
type enroller interface {
	enroll(k int) (status int, body []byte, err error)
}

// An applicant makes requests for new students, and repeats some of them.
type applicant struct {
	term     term
	enroller enroller
	next     func() int
	seated   []int // students whose requests were granted
	wrong    []string
	count    int
}

// How often requests are repeated: after their answer, as if it was lost, and while another client
// may still wait for the first answer.
const (
	repeats = 10
	after   = 3
	beside  = 7
	distant = 37
)

// step makes a request, perhaps twice.
func (c *applicant) step() error {
	k := c.next()
	first, err := c.send(k)
	if err != nil {
		return err
	}
	switch {
	case k%repeats == after:
		second, err := c.send(k)
		if err != nil {
			return err
		}
		if want := again(first); second != want {
			c.wrong = append(c.wrong, fmt.Sprintf("request %d got status %d and then %d, want %d", k, first, second, want))
		}
	case k%repeats == beside && k > distant:
		_, err = c.send(k - distant)
	}
	return err
}

// again returns the expected status of a repeated request.
func again(status int) int {
	if status == http.StatusCreated {
		return http.StatusOK
	}
	return status
}

func (c *applicant) send(k int) (int, error) {
	status, body, err := c.enroller.enroll(k)
	if err != nil {
		return 0, err
	}
	c.count++
	switch status {
	case http.StatusCreated:
		c.seated = append(c.seated, k)
		fallthrough
	case http.StatusOK:
		if want := c.term.answer(k); string(body) != want {
			c.wrong = append(c.wrong, fmt.Sprintf("request %d is answered with %.200q, want %q", k, body, want))
		}
	case http.StatusConflict:
		if k%c.term.courses >= c.term.scarce {
			c.wrong = append(c.wrong, fmt.Sprintf("request %d is refused though there are seats: %.200q", k, body))
		}
	default:
		return status, fmt.Errorf("request %d got status %d: %.200q", k, status, body)
	}
	return status, nil
}

// A register is the content of the bucket at the end.
type register struct {
	free     map[string]int             // seats left, by course
	students map[string]map[string]bool // enrolled, by course
	requests map[string]bool            // that were granted a seat
}

// An audit counts the violations of promises.
type audit struct {
	oversold int // seats beyond a course's seats, or lost
	twice    int // requests that were granted a seat twice by their answers
	missing  int // requests that were granted a seat by their answer and are not in the bucket
	unknown  int // enrolled students without a request that was granted by its answer
}

// auditAnswers compares the answers that clients received with the content of the bucket.
func (t term) auditAnswers(seated []int, in register) audit {
	var a audit
	told := map[int]int{}
	for _, k := range seated {
		told[k]++
	}
	for k, times := range told {
		if times > 1 {
			a.twice++
		}
		if !in.requests[requestID(k)] || !in.students[t.course(k)][student(k)] {
			a.missing++
		}
	}
	for i := range t.courses {
		course := t.course(i)
		taken := len(in.students[course])
		a.oversold += abs(in.free[course] + taken - t.seats(i))
		a.oversold += max(0, -in.free[course])
	}
	enrolled := 0
	for course := range maps.Values(in.students) {
		enrolled += len(course)
	}
	a.unknown = max(0, enrolled-len(told), len(in.requests)-len(told))
	return a
}

func abs(n int) int { return max(n, -n) }
