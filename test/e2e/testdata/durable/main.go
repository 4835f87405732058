// Command durable is the functions of workflows whose nodes die: draw makes a value
// that no other run makes, see notes the value that it is given, end counts
// ends, count says how many there were, and rest sleeps.
package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(handle) }

func main() {}

var notes = guest.Bucket("notes")

func handle(request []byte) ([]byte, error) {
	switch os.Getenv("DOES") {
	case "count":
		count, _, err := notes.Get("ends")
		return count, err
	case "rest":
		time.Sleep(5 * time.Minute)
		return nil, nil
	}
	execution, ok := guest.Meta("execution")
	if !ok {
		return nil, errors.New("this is no step of a workflow")
	}
	time.Sleep(10 * time.Millisecond) // a moment in which a node may die
	switch os.Getenv("DOES") {
	case "draw":
		return strconv.AppendUint(nil, guest.Rand().Uint64()>>12, 10), nil
	case "see":
		return request, see("seen/"+execution, request)
	}
	// A step that is run again after a node's death finds that it was done.
	err := notes.Txn(guest.Missing("end/"+execution), guest.Put("end/"+execution, request), guest.Add("ends", 1, 0))
	var done *guest.ConditionError
	if errors.As(err, &done) {
		err = nil
	}
	return request, errors.Join(err, see("seen/"+execution, request))
}

// see fails when another value was seen before: then a step whose end was recorded has
// been run again.
func see(key string, value []byte) error {
	err := notes.Txn(guest.Missing(key), guest.Put(key, value))
	var known *guest.ConditionError
	if !errors.As(err, &known) {
		return err
	}
	first, _, err := notes.Get(key)
	if err == nil && !bytes.Equal(first, value) {
		err = errors.New("saw " + string(first) + ", and now " + string(value))
	}
	return err
}
