package main

// attacks lists the attacks, by attacker.
func attacks() []Attack {
	const (
		sandbox = "internal/sandbox"
		worker  = "internal/accel/worker"
		lend    = "internal/accel/lend"
		calls   = "internal/calls"
		gateway = "internal/gateway"
		guests  = "internal/function"
		tenants = "internal/tenant"
		state   = "internal/pool/state"
	)
	return []Attack{
		{"kernel", "operator's terminals and the machine's block devices", "opens /dev/tty, other terminals and block devices; types into a terminal", worker, "TestNoTerminal", Held},
		{"kernel", "the network", "UDP, MSG_FASTOPEN, MPTCP and every other family of sockets", worker, "TestHostileKernel", Held},
		{"kernel", "node's files and environment", "reads /etc/shadow, the node's folder and environment", worker, "TestHostileKernel", Held},
		{"native code in a worker", "node's machine", "1,000 sessions that leave files, shared memory, processes and cached code", worker, "TestNothingIsLeft", Held},
		{"native code in a worker", "node's machine", "paths, devices, sockets, processes, namespaces and privileges beyond the sandbox", sandbox, "TestAttacks", Held},
		{"native code in a worker", "node's machine", "every system call by number, every path, device file and family of sockets: only the lists in docs/sandbox.md", sandbox, "TestAllowList", Held},
		{"native code in a worker", "node's machine, without namespaces", "the same where the machine allows no namespaces", sandbox, "TestAttacksWithoutNamespaces", Held},
		{"kernel", "other programs' compiled kernels", "writes into the cache of another program or holder", lend, "TestCachesAreSeparate", Held},
		{"kernel", "its own program's compiled kernels", "replaces its own code in the cache, which later sessions of that program load", worker, "TestPoisonedCache", Held},
		{"kernel", "node's disk", "fills its cache: 512 MiB of memory for a session, and as much of the disk for its program", lend, "TestCachesAreBounded", Bounded},
		{"program", "memory of other leases", "several sessions of one lease each take all of its memory", lend, "TestMemoryIsTheLeases", Held},
		{"program", "device's time of other leases", "a weight beyond the limit, by the API or by another node's claim", lend, "TestWeightIsBounded", Held},
		{"program", "memory of other leases", "a worker that reports less memory than it uses", lend, "TestLyingWorker", Held},
		{"program", "node's log", "a worker writes without end: 100 lines, then 10 a second for each lease", lend, "TestLogLinesAreBounded", Bounded},
		{"program", "node's processes", "a worker that hangs and its children outlive the session", lend, "TestHangingWorkerIsKilledWithItsChildren", Held},
		{"program", "the machine's memory", "takes more than its control group may have: the session ends, others of its lease go on", lend, "TestMemoryOfTheMachine", Held},
		{"program", "node's processes", "leaves its session and process group: everything in its control group ends", lend, "TestControlGroups", Held},
		{"program", "node's processes", "starts processes without end: 4,096 tasks for each session, 16,384 for each lease", "internal/cgroup", "TestTasksEndAsOne", Bounded},
		{"program", "another session's data", "reads memory that an earlier session left on the device", "internal/accel/compute", "TestBuffersAreZero", Held},
		{"device node", "program's memory", "answers every call with every field at its edges, and with combinations of them (an hour of these: `make fuzz-library`)", "cmd/libopencl/ctest", "TestHostileWorker", Held},
		{"device node", "program's commands on other devices", "completes and fails events of another worker's link, and the program's own", "cmd/libopencl/ctest", "TestNoticesOfOtherLinks", Held},
		{"local user", "tenants' functions", "calls them through the port for plain gRPC and by shared memory, here and across nodes", calls, "TestStrangersCannotCallTenants", Held},
		{"local user", "tenants' functions", "offers services under a tenant's reserved names", calls, "TestStrangersCannotImpersonateTenants", Held},
		{"local user", "node's data folder", "makes the folder beforehand, or opens its mode", "internal/datadir", "TestCheck", Held},
		{"guest, program, joined node", "what functions of other tenants send to models", "offers the service by which they reach their node's models", calls, "TestModelsOfFunctions", Held},
		{"guest", "node's files", "plants a link in its folder for the next process to follow", tenants, "TestPlantedLink", Held},
		{"guest", "other tenants' modules", "breaks out and replaces or deletes artifacts, which all tenants of a node read", tenants, "TestPlantedLink", Held},
		{"guest", "other guests' time", "passes very many vectors to a host call: 1,024, charged to its deadline", guests, "TestHostCallsAreBounded", Bounded},
		{"guest", "other guests' time", "spins, recurses, allocates, sleeps", guests, "TestHostileGo", Held},
		{"manifest", "tenant's process", "a module whose code is made to keep the optimiser or the compiler busy", guests + "/optimize", "TestHostileModules", Held},
		{"manifest", "tenant's process", "bodies that make the optimiser quadratic", guests + "/optimize", "TestHostileBodies", Held},
		{"HTTP client", "other tenants' requests", "sends requests for two tenants over one kept-alive connection", "internal/node", "TestNoTenantReadsAnothersRequests", Held},
		{"HTTP client", "gateway's memory", "bodies of many requests at a time: 512 MiB for each tenant and node", gateway, "TestBodiesAreWeighed", Bounded},
		{"guest", "node's memory", "writes to arenas wherever it can: 4 GiB for each tenant and node", guests, "TestArenasAreCharged", Bounded},
		{"guest", "node's memory", "prints without end: 64 MiB of what a tenant's functions printed are kept", gateway, "TestOutputOfATenantIsBounded", Bounded},
		{"guest", "node's memory, the pool's state", "fills many buckets: 1 GiB for those of a tenant that are open on a node", "internal/pool/bucket", "TestBudgetOfATenant", Bounded},
		{"workflow", "the pool's state", "starts executions without end: histories, events and buckets of a tenant have 512 MiB together", state, "TestHistoriesAreBounded", Bounded},
		{"guest", "the pool's state", "breaks out and writes keys of the table, or opens buckets, without end", state, "TestTicksAreBounded", Bounded},
		{"guest", "other tenants' secrets", "breaks out and reads the pool's table, its changes and its leader", state, "TestTenantReadsItsOwn", Held},
		{"joined node", "the pool's state", "has the node answer a refused request on a key of the table", "internal/pool/guard", "TestRefusalIsAnswered", Held},
		{"program", "another session's latency", "kernels that are long, endless or lie about their time, on a processor: 2.2 times of alone", "internal/accel/arbiter", "TestLatencyBesideAttackers", Held},
		{"program", "another session's latency", "runs past its turn on a processor: its worker is stopped", lend, "TestOverrunningWorkerIsSuspended", Held},
		{"web page", "the local gateway", "DNS rebinding: requests with a host name of its own", gateway, "TestHosts", Held},
		{"web page", "models of a pool without API keys", "unloads models, and has them compute, by requests that browsers send without asking", "internal/model/keys", "TestGuard", Held},
		{"HTTP client", "calls of other clients", "reads a response a little now and then, or sends a body that it has announced never or slowly: for 30 s, beside a second for each 64 KiB", gateway, "TestTricklingReader", Bounded},
		{"HTTP client", "connections of other clients", "announces a body, which nothing reads, and sends none of it", gateway, "TestUnreadBody", Bounded},
		{"HTTP client", "connections of other clients", "the same at the port of several tenants", "internal/node", "TestForwarderBoundsBodies", Bounded},
		{"client of models", "connections of other clients", "leaves the window of a stream of HTTP/2 closed", gateway, "TestPaceStream", Bounded},
		{"client of models", "node's descriptors", "opens connections to the port of models: 20,000", "internal/node", "TestClientListener", Bounded},
		{"client of models", "node's memory", "bodies of many requests at a time: 1 GiB of one client, 2 GiB of all on a node", "internal/node", "TestBodiesForModelsAreWeighed", Bounded},
		{"client of models", "other clients' prompts", "guesses the beginning of a prompt and sees in the answer how much of it was cached", "internal/model/engine/llama", "TestPrefixTree", Held},
		{"rank of a job", "operator's terminal", "opens the terminal at which its node was started", "internal/train/launch", "TestNoTerminal", Held},
		{"rank of a job", "node's machine", "leaves shared memory, and processes in other sessions, on a node of root's", "internal/train/job", "TestRanksLeaveNothing", Held},
		{"rank of a job", "pool's state", "has its nodes keep checkpoints until their disks are full: but 256 MiB", "internal/artifact", "TestFilesLeaveSpace", Bounded},
		{"node of a job", "memory of other nodes", "sends messages that no rank receives, in many groups: 4 GiB for each job", "internal/train/ranks", "TestMailboxesShareABound", Bounded},
		{"rank of a job", "node's memory", "sums ever other buffers in ever other groups by top-k: 4 GiB for each job", "internal/train/compress", "TestResidualsAreBounded", Bounded},
		{"object store", "user's terminal and memory", "control characters, endless and deep texts in its replies", "internal/train/object", "TestHostileServer", Held},
		{"rank of a job", "node's files", "reads and writes outside of its own folder", "internal/train/launch", "TestConfinedRankSeesOnlyItsOwnFolder", Held},
		{"workflow", "services of the node and its network", "requests addresses that are not public, by names that resolve to them and in the forms of IPv6", "internal/egress", "TestAddresses", Held},
		{"WebSocket client", "gateway's memory", "messages queued for a slow function: out of the same 512 MiB", gateway, "TestQueuedMessagesAreWeighed", Bounded},
		{"WebSocket client", "gateway's memory", "many clients have messages sent and read none: out of the same 512 MiB", gateway, "TestMessagesToSlowClients", Bounded},
		{"WebSocket client", "functions", "invalid UTF-8, unmasked frames, broken fragments (RFC 6455)", gateway, "TestRFC6455", Held},
		{"workflow", "tenant's process", "expressions that run for minutes", "internal/workflow/dsl", "TestBounded", Bounded},
		{"gRPC client", "node's descriptors", "opens connections until there are no descriptors left: accepting resumes", "internal/acceptor", "TestShortage", Bounded},
		{"client of models", "other users' memory", "registers shared memory of another user, which the node as root may open, or of a machine that it is not on", "internal/model/oip", "TestSharedMemoryOfOthers", Held},
		{"stranger with a spent token", "names of nodes", "learns from the refusal which names exist", "internal/node", "TestUsedTokenIsRefused", Held},
		{"removed node", "pool", "connects and keeps its leases after `outboard nodes remove`", "internal/pool", "TestRemove", Held},
		{"joined node", "authority's key, other nodes' records, streams", "reads, overwrites, deletes, mirrors or captures them with its own credentials", "internal/pool", "TestHostileJoinedNode", Held},
		{"tenant", "another tenant's files", "an owner named `..`", tenants + "/blob", "TestOwnersAreApart", Held},
		{"process of a helper", "node", "packets that are truncated, too large, or bring too many files", "internal/ipc", "TestHostilePackets", Held},
		{"node, guest, program", "operator's terminal", "control characters in names and messages", "internal/cli", "TestTablesAreClean", Held},
	}
}
