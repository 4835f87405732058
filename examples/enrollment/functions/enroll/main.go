// Command enroll enrols students in courses whose seats are limited.
//
//	POST /courses/math                  20            opens a course with that many seats
//	GET  /courses/math                                {"course":"math","free":20}
//	PUT  /courses/math/students/ann                   {"course":"math","student":"ann"}
//
// A PUT has an idempotency key of the client, the header Request-Id. When the request is
// repeated, since the first response was lost, it gets the same response and no second seat.
package main

import (
	"errors"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(handle) }

func main() {}

// seats has three kinds of keys: "free/COURSE", a number; "request/ID", the response;
// "student/COURSE/NAME", the request by which the student is enrolled.
var seats = guest.Bucket("seats")

func handle(message []byte) ([]byte, error) {
	course, _ := guest.Meta("course")
	if !safe(course) {
		return problem(400, "this is no name of a course")
	}
	switch method, _ := guest.Meta("method"); method {
	case "POST":
		return open(course, body(message))
	case "PUT":
		return enroll(course)
	}
	return readSeats(course)
}

func open(course string, count []byte) ([]byte, error) {
	if !digits(count) {
		return problem(400, "how many seats? A number is wanted")
	}
	err := seats.Txn(guest.PutNew("free/"+course, count))
	if _, there := errors.AsType[*guest.ConditionError](err); there {
		return problem(409, "the course is open already")
	}
	return respond(201, `{"course":"`+course+`"}`), err
}

func readSeats(course string) ([]byte, error) {
	free, revision, err := seats.Get("free/" + course)
	if err != nil || revision == 0 {
		return problem(404, "there is no such course")
	}
	return respond(200, `{"course":"`+course+`","free":`+string(free)+`}`), nil
}

// enroll reserves a seat and records the student and the response, all in one transaction.
func enroll(course string) ([]byte, error) {
	student, _ := guest.Meta("student")
	id, _ := guest.Meta("Request-Id")
	if !safe(student) || !safe(id) {
		return problem(400, "a student in the path and a Request-Id in the header are wanted")
	}
	answer := `{"course":"` + course + `","student":"` + student + `"}`
	err := seats.Txn(
		guest.PutNew("request/"+id, []byte(answer)),
		guest.PutNew("student/"+course+"/"+student, []byte(id)),
		guest.Add("free/"+course, -1, 0),
	)
	condition, unmet := errors.AsType[*guest.ConditionError](err)
	switch {
	case err == nil:
		return respond(201, answer), nil
	case !unmet:
		return nil, err
	case condition.Index == 0:
		first, _, err := seats.Get("request/" + id)
		return respond(200, string(first)), err
	case condition.Index == 1:
		return problem(409, "the student is enrolled already")
	}
	return problem(409, "no seat is free")
}
