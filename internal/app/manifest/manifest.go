// Package manifest reads and checks an app's manifest, app.yaml.
//
// [Parse] finds all mistakes at once: each [Problem] has the file, line and column and names the
// remedy. The content of a manifest is an [App], plain data that survives JSON, as which the pool
// keeps it. Mistakes that only other packages can find (a module that can't be run, another app's
// function) are reported with [Manifest.Problem], which knows their position.
//
// The package imports none of the packages that run apps.
package manifest

import (
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/egress"
)

// DefaultTenant is the tenant of an app that names none.
const DefaultTenant = "default"

// DefaultEntry is the export of a function that names none.
const DefaultEntry = "handle"

// App is the content of a manifest. Names are checked, references lead to existing objects,
// defaults are filled in.
type App struct {
	Name      string              `json:"app"`
	Tenant    string              `json:"tenant"`
	Functions map[string]Function `json:"functions,omitempty"`
	// Buckets are the names of the app's buckets.
	Buckets []string `json:"buckets,omitempty"`
	// BucketTTL is the time-to-live, by bucket, of values that are put without one. Other buckets
	// keep such values for ever.
	BucketTTL map[string]time.Duration `json:"bucket_ttl,omitempty"`
	// Arenas are the sizes of the app's named arenas.
	Arenas  map[string]outboard.Bytes `json:"arenas,omitempty"`
	Secrets map[string]Secret         `json:"secrets,omitempty"`
	// Devices are the devices that the app leases from the pool.
	Devices map[string]Device `json:"devices,omitempty"`
	// Workflows are the files of the workflows, by name.
	Workflows map[string]string `json:"workflows,omitempty"`
	// Launch says when the steps of a workflow get their instances: "lazy", when they run, "eager",
	// with the execution, or "nimble", just in time. The default is nimble.
	Launch    map[string]string `json:"launch,omitempty"`
	Routes    []Route           `json:"routes,omitempty"`
	Subjects  []Subject         `json:"subjects,omitempty"`
	Schedules []Schedule        `json:"schedules,omitempty"`
	// Outgoing are the hosts to which workflows, and functions that import them, may send
	// requests.
	Outgoing []egress.Host `json:"outgoing,omitempty"`
	// Services are the services of the pool that workflows may call by gRPC.
	Services []string `json:"services,omitempty"`
}

// Function is a function of an app.
type Function struct {
	// Module is a file beside the manifest, or Registry and a reference.
	Module string `json:"module"`
	// Entry is the export that runs.
	Entry string `json:"entry"`
	// Args are the arguments of the module, after its name.
	Args []string `json:"args,omitempty"`
	// HTTP says that a request's and an answer's body is an HTTP message.
	HTTP    bool              `json:"http,omitempty"`
	Limits  Limits            `json:"limits,omitzero"`
	Env     map[string]string `json:"env,omitempty"`
	Imports []Import          `json:"imports,omitempty"`
}

// Limits bound a function. A field that is 0 means the default of the runtime.
type Limits struct {
	Memory      outboard.Bytes `json:"memory,omitempty"`
	Deadline    time.Duration  `json:"deadline,omitempty"`
	Fuel        int64          `json:"fuel,omitempty"`
	Concurrency int            `json:"concurrency,omitempty"`
	// Queue is how many calls wait for their turn; -1 for none.
	Queue    int            `json:"queue,omitempty"`
	Response outboard.Bytes `json:"response,omitempty"`
	// Output is how much of a call's standard output and standard error is kept, each.
	Output outboard.Bytes `json:"output,omitempty"`
	// Window is the size of a function's window for an execution's arena.
	Window outboard.Bytes `json:"window,omitempty"`
}

// Kind is the kind of an imported resource: a function, an arena, a bucket, a secret, ...
type Kind string

// The kinds.
const (
	ImportFunction Kind = "function"
	ImportArena    Kind = "arena"
	ImportBucket   Kind = "bucket"
	ImportSecret   Kind = "secret"
	ImportDevice   Kind = "device"
	ImportModel    Kind = "model" // of the pool
	ImportOutgoing Kind = "outgoing"
)

// Import is a resource that a function may import.
type Import struct {
	Kind Kind `json:"kind"`
	// Name is the resource's name in the app or in the pool, or "APP/FUNCTION".
	Name string `json:"name"`
	// Share makes the function's writes to an arena visible to others, and makes calls on one node
	// use one lease of a device at a time.
	Share bool `json:"share,omitempty"`
}

// String returns the import as guests and people name it, "bucket:seats".
func (i Import) String() string { return string(i.Kind) + ":" + i.Name }

// Function returns the app and the function to which a function's import in app refers.
func (i Import) Function(app string) (otherApp, function string) {
	if other, name, ok := strings.Cut(i.Name, "/"); ok {
		return other, name
	}
	return app, i.Name
}

// Secret names the source of a secret's value, which is read when the app is deployed. One is set.
type Secret struct {
	Env  string `json:"env,omitempty"`
	File string `json:"file,omitempty"`
}

// Device says which devices fit, and how one is leased, in the terms of `outboard run`.
type Device struct {
	// Selector is an outboard.Selector's text; "" fits all.
	Selector string `json:"selector,omitempty"`
	// Memory is the memory that the lease may allocate; 0 is the whole device.
	Memory outboard.Bytes `json:"memory,omitempty"`
	// Weight is the share of device time against other leases; 0 means 1.
	Weight int `json:"weight,omitempty"`
	// Timeout is how long an import waits for a device, 0 for nearly as long as the call
	// may take.
	Timeout time.Duration `json:"timeout,omitempty"`
	// NoWait fails at once when all devices that fit are leased.
	NoWait bool `json:"no_wait,omitempty"`
	// Keep is how long a lease that is shared outlives its last holder, for the next holder.
	Keep time.Duration `json:"keep,omitempty"`
}

// Route leads requests to a function, a workflow, or a function that takes the events
// of WebSockets: one is set.
type Route struct {
	// Path is a pattern of net/http, "/cart/{id}", below the app's name.
	Path string `json:"path"`
	// Methods are the methods that the route takes; none means all.
	Methods   []string `json:"methods,omitempty"`
	Function  string   `json:"function,omitempty"`
	Workflow  string   `json:"workflow,omitempty"`
	WebSocket string   `json:"websocket,omitempty"`
	// Wait answers with a workflow's output.
	Wait bool `json:"wait,omitempty"`
	// Origins are the hosts, patterns of path.Match, whose pages may open the WebSocket beside
	// pages of the route's own host.
	Origins []string `json:"origins,omitempty"`
	// Subprotocols are the subprotocols of the WebSocket, the preferred first.
	Subprotocols []string `json:"subprotocols,omitempty"`
	// Request bounds a request's body; 0 means the gateway's default.
	Request outboard.Bytes `json:"request,omitempty"`
}

// Subject starts a function or a workflow with each message on a subject.
type Subject struct {
	Subject string `json:"subject"`
	// Queue is the group of subscribers of which one receives each message, "" for the app's own.
	Queue    string `json:"queue,omitempty"`
	Function string `json:"function,omitempty"`
	Workflow string `json:"workflow,omitempty"`
}

// Schedule starts a function or a workflow at given times.
type Schedule struct {
	// Cron has five fields, or is like "@hourly".
	Cron string `json:"cron"`
	// Zone is the time zone of Cron, "" for UTC.
	Zone     string `json:"zone,omitempty"`
	Function string `json:"function,omitempty"`
	Workflow string `json:"workflow,omitempty"`
	Body     string `json:"body,omitempty"`
}

// Registry is the prefix of a module that lies in a registry, or under a name in the node's store.
const Registry = "oci:"

// Files returns the names of the modules and workflow files that the app needs, as they stand in
// the manifest, each once, in the order of their names.
func (a *App) Files() []string {
	files := map[string]bool{}
	for _, f := range a.Functions {
		files[f.Module] = true
	}
	for _, file := range a.Workflows {
		files[file] = true
	}
	return sorted(files)
}
