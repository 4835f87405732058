// Package hello is a typical HTTP handler of an application: it reads JSON, makes a decision and
// writes JSON. The same code runs in a function and natively.
package hello

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// An Order is the body of a request.
type Order struct {
	Course  string `json:"course"`
	Student string `json:"student"`
	Seats   int    `json:"seats"`
}

// A Receipt is the body of a response.
type Receipt struct {
	ID       string `json:"id"`
	Course   string `json:"course"`
	Accepted bool   `json:"accepted"`
	Left     int    `json:"left"`
}

const maxSeats = 40

// Greet answers a path that ends with "/people/{name}", as the template of `outboard new go` does.
func Greet(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name == "" {
		http.Error(w, "the name is missing", http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintf(w, "hello %s\n", name) // the client hung up
}

// Handler answers POST with an Order at a path that ends with "/orders/{id}".
func Handler(w http.ResponseWriter, r *http.Request) {
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	receipt := Receipt{ID: r.PathValue("id"), Course: o.Course, Accepted: o.Seats <= maxSeats, Left: maxSeats - o.Seats}
	_ = json.NewEncoder(w).Encode(receipt) // the client hung up
}
