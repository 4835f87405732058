package function

import (
	"encoding/json"
	"fmt"
	"testing"
)

// order is a request that a realistic handler gets: a few kilobytes of JSON.
func order() []byte {
	type item struct {
		Name  string   `json:"name"`
		Count int      `json:"count"`
		Tags  []string `json:"tags"`
	}
	var items []item
	for i := range 20 {
		items = append(items, item{fmt.Sprint("key", i*7), i * 31 % 17, []string{"a", "b", "c"}})
	}
	body, _ := json.Marshal(items)
	return append([]byte("work "), body...)
}

// BenchmarkChecks is what the checks of deadline and fuel cost a handler.
func BenchmarkChecks(b *testing.B) {
	r := open(b, Options{})
	app := goGuest(b, "app")
	for _, mode := range []struct {
		name      string
		unmetered bool
		limits    Limits
	}{{"off", true, Limits{}}, {"on", false, Limits{Fuel: 1 << 40}}} {
		f, err := r.Deploy(b.Context(), app, Settings{Name: mode.name, Limits: mode.limits, Unmetered: mode.unmetered})
		if err != nil {
			b.Fatal(err)
		}
		q := Request{Body: order()}
		b.Run("handler/"+mode.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := f.Call(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
