// Command gate is functions of which more are called at once than may be: work waits until
// open was called, counts and answers with its request; count says how often work came to its end; nap
// sleeps for as long as its request says.
package main

import (
	"os"
	"time"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(handle) }

func main() {}

var notes = guest.Bucket("notes")

func handle(request []byte) ([]byte, error) {
	switch os.Getenv("DOES") {
	case "open":
		return request, notes.Put("open", request)
	case "count":
		count, _, err := notes.Get("ends")
		return count, err
	case "nap":
		long, err := time.ParseDuration(string(request))
		time.Sleep(long)
		return request, err
	}
	for {
		_, revision, err := notes.Get("open")
		if err != nil {
			return nil, err
		}
		if revision != 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return request, notes.Txn(guest.Add("ends", 1, 0))
}
