package shared

import "time"

// Patient makes an end sleep until it is woken, so that a wake-up that is lost
// shows.
func Patient(o Options) Options {
	o.patience = time.Hour
	return o
}
