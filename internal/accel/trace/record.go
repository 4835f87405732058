package trace

// Class says when a forwarded call is answered.
type Class uint8

// The classes. In a local run they are derived from the API's description: the class of the call if
// it were forwarded with all optimisations on.
const (
	// AnsweredLocally is a call that sends nothing.
	AnsweredLocally Class = iota
	// Early is a call that sends a message and returns without an answer.
	Early
	// WaitedFor is a call that sends a message and waits for the reply.
	WaitedFor

	classes = iota
)

func (c Class) String() string { return name(c, "local", "early", "waited for") }

// Blocking is the relation of a call to the device's queues.
type Blocking uint8

// The kinds of blocking.
const (
	// NonBlocking calls don't touch a queue.
	NonBlocking Blocking = iota
	// DeviceBlocking calls enqueue a command, which occupies the device for DeviceTime, and
	// return.
	DeviceBlocking
	// HostBlocking calls wait for commands: a call that enqueues a command itself (Record.Command)
	// for that command; a call with Waits for the commands of those events; a call with neither for
	// all commands of its Queue.
	HostBlocking

	blockings = iota
)

func (b Blocking) String() string { return name(b, "non-blocking", "device-blocking", "host-blocking") }

func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

// Record is one call of the API by a program. Times are ns on the trace's clock, durations ns,
// sizes bytes. A value of 0 in a duration that the call's class does not have means "none".
type Record struct {
	// Process numbers the processes of the program that use the API, from 0.
	Process uint32
	// Thread numbers the threads of a process that call the API, from 0 in the order of their
	// first calls.
	Thread uint32
	// Op is the function, an index into Header.Ops.
	Op uint16
	// Class says when the call is answered if it is forwarded.
	Class Class
	// Blocking is the relation of the call to queues.
	Blocking Blocking
	// Command reports that the call enqueues a command of the device.
	Command bool
	// OutOfOrder reports that the call's queue executes out of order: only Waits order its
	// commands.
	OutOfOrder bool
	// Failed reports that the call returned an error.
	Failed bool
	// Device is the device that the call is for, an index into Header.Devices.
	Device uint8
	// Queue identifies the command queue within the process, 0 for none.
	Queue uint64
	// Event identifies the event that the call's command completes, within the process; 0 for a
	// command without an event. A user event is the Event of its clCreateUserEvent; the call
	// clSetUserEventStatus with the same Event completes it.
	Event uint64
	// Waits are the events that the command, or the call, waits for. The slice is valid until
	// the next call of Reader.Next.
	Waits []uint64

	// Forward and Backward count the bytes of messages towards the device and back, headers
	// included. In a local run they are derived from the API's description and the arguments.
	Forward, Backward uint64

	// Gap is the time that the thread spent in the program since its previous call ended, or,
	// before a thread's first call, since the process loaded the driver.
	Gap int64
	// Begin and End are when the call began and returned.
	Begin, End int64
	// Encode is the time in the driver library until the call's last message was handed to the
	// transport, waits for flow-control credit not included; 0 in a local run.
	Encode int64
	// WireForward is the time from then until the worker began to execute the message, the
	// wait behind earlier messages included; 0 in a local run.
	WireForward int64
	// Execute is the time of the call in the real driver, or until the answer if the worker
	// executes it beside its dispatcher, as builds. For HostBlocking calls it excludes the time in
	// which the driver waited for the device.
	Execute int64
	// WireBackward is the time from the worker's reply until End; 0 for a call without reply
	// and in a local run.
	WireBackward int64
	// Blocked is the time within the call in which the thread waited: for flow-control credit
	// or a reply (remote), for the device (local).
	Blocked int64
	// Start is when the device began to execute the call's command. 0: unknown.
	Start int64
	// DeviceTime is how long the device executed the command. 0 with Start 0: unknown.
	DeviceTime int64
}

// Duration returns the length of the call as the program saw it, in ns.
func (r *Record) Duration() int64 { return r.End - r.Begin }

// HasDeviceTime reports whether the device's times of the call's command are known.
func (r *Record) HasDeviceTime() bool { return r.Start != 0 }
