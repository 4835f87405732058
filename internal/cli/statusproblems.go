package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A statusCheck finds problems of one kind in a status.
type statusCheck func(*poolStatus) []statusProblem

// statusChecks returns the checks of `outboard status`, the gravest first.
func statusChecks() []statusCheck {
	return []statusCheck{checkHealth, checkClocks, checkStateCopies, checkApps, checkModels, checkCallErrors, checkUnservedCalls}
}

func (s *poolStatus) findProblems() []statusProblem {
	var all []statusProblem
	for _, check := range statusChecks() {
		all = append(all, check(s)...)
	}
	return all
}

// wantedCopies is the number of nodes that keep the pool's state once the pool has as many.
const wantedCopies = 3

// checkStateCopies reports a pool whose state would not survive the loss of a node. A pool
// whose state is in an external NATS cluster has no copies of its own.
func checkStateCopies(s *poolStatus) []statusProblem {
	if absent := absentKeepers(s); len(absent) > 0 {
		return []statusProblem{keeperProblem(absent, len(s.Node.Keepers))}
	}
	copies := 0
	for _, n := range s.Nodes {
		if n.Copy {
			copies++
		}
	}
	if copies == 0 || copies >= wantedCopies || len(s.Nodes) < wantedCopies {
		return nil
	}
	return []statusProblem{{
		Subject: "pool",
		Text:    fmt.Sprintf("%d of %d nodes keep the pool's state, and %d are wanted: it may not survive the loss of one", copies, len(s.Nodes), wantedCopies),
		Remedy:  "see `outboard status` on each of the nodes without a copy: it names what keeps the node from having one",
	}}
}

// absentKeepers returns the nodes that were chosen to keep the pool's state and are not listed. This
// node answers: without a majority its own entry expires, too.
func absentKeepers(s *poolStatus) []string {
	var absent []string
	for _, keeper := range s.Node.Keepers {
		if keeper != s.Node.Node && !slices.ContainsFunc(s.Nodes, func(n outboard.Node) bool { return n.ID == keeper }) {
			absent = append(absent, string(keeper))
		}
	}
	return absent
}

// keeperProblem describes the absence of nodes that keep the pool's state.
func keeperProblem(absent []string, keepers int) statusProblem {
	which := fmt.Sprintf("%d of the %d nodes that keep the pool's state are away (%s)", len(absent), keepers, strings.Join(absent, ", "))
	if left := keepers - len(absent); left > keepers/2 {
		return statusProblem{
			Subject: "pool", Text: which + ": the loss of one more would stop the pool",
			Remedy: "start it again with `outboard up`; if it is lost, replace it: `outboard nodes remove NODE`, then join a new one",
		}
	}
	return statusProblem{Subject: "pool", Text: which + ": the pool accepts no changes", Remedy: "start them again with `outboard up`"}
}

// checkClocks reports nodes whose clocks differ from this node's.
func checkClocks(s *poolStatus) []statusProblem {
	var differ []string
	for _, c := range s.Node.Clocks {
		ahead, word := time.Duration(c.Ahead), "ahead"
		if ahead < 0 {
			ahead, word = -ahead, "behind"
		}
		differ = append(differ, fmt.Sprintf("%s %v %s", c.Node, ahead, word))
	}
	if len(differ) == 0 {
		return nil
	}
	const shown = 5
	if more := len(differ) - shown; more > 0 {
		differ = append(differ[:shown], fmt.Sprintf("and %d more", more))
	}
	return []statusProblem{{
		Subject: "clocks",
		Text:    "the clocks of other nodes differ from this node's (" + strings.Join(differ, ", ") + "): beyond five minutes nodes refuse each other's certificates",
		Remedy:  "set the clocks of these machines and of this one, for example with chrony or systemd-timesyncd",
	}}
}

// checkHealth reports the parts of this node that do not work. Those of a node that has no access to
// the pool need its remedy.
func checkHealth(s *poolStatus) []statusProblem {
	var all []statusProblem
	excluded := slices.ContainsFunc(s.Node.Problems, func(p client.HealthProblem) bool { return p.Part == membershipPart })
	for _, p := range s.Node.Problems {
		all = append(all, statusProblem{
			Subject: "node " + string(s.Node.Node), Text: p.Part + ": " + oneLine(p.Text),
			Remedy: healthRemedy(p.Part, excluded, otherCopies(s)),
		})
	}
	return all
}

// membershipPart is the part of a node that reports whether the node belongs to its pool.
const membershipPart = "membership"

// otherCopies returns the other nodes that kept the pool's state when this node last heard of them.
func otherCopies(s *poolStatus) []string {
	var names []string
	for _, n := range s.Nodes {
		if n.Copy && n.ID != s.Node.Node {
			names = append(names, string(n.ID))
		}
	}
	return names
}

func healthRemedy(part string, excluded bool, copies []string) string {
	switch {
	case excluded:
		return "stop the node, empty its data directory, and join it anew: `outboard token` on a node of the pool"
	case part == "identity":
		return "stop one of the two, empty its data directory, and join it anew with another --name: `outboard token` on a node of the pool"
	}
	const recovers = "the node goes on by itself once the cause is gone; see its log, and `/healthz` on its socket"
	if part == "state" && len(copies) > 0 {
		return "see that the other nodes that keep the pool's state run and can be reached (" + strings.Join(copies, ", ") + "): " + recovers
	}
	return recovers
}

// checkApps reports apps that a node does not serve.
func checkApps(s *poolStatus) []statusProblem {
	var all []statusProblem
	for _, a := range s.Apps {
		for _, n := range a.Nodes {
			if text, remedy := appProblem(a, n); text != "" {
				all = append(all, statusProblem{Subject: "app " + a.Name, Text: text, Remedy: remedy})
			}
		}
	}
	return all
}

// silenceReason returns why a node did not report its state. The reason is the error of a call of the
// node, which begins with the name that the message has already.
func silenceReason(n client.AppNode) string {
	return strings.TrimPrefix(oneLine(n.Reason), fmt.Sprintf("node %s: ", n.Node))
}

func appProblem(a client.App, n client.AppNode) (text, remedy string) {
	switch n.State {
	case client.AppFailed:
		return fmt.Sprintf("node %s cannot start version %d: %s", n.Node, a.Version, oneLine(n.Reason)),
			fmt.Sprintf("see `outboard logs %s`; %s", a.Name, appReplacement(a))
	case client.AppSilent:
		return fmt.Sprintf("node %s does not answer: %s", n.Node, cmp.Or(silenceReason(n), "no reason given")),
			"see the log of that node, and `outboard nodes`"
	}
	return "", ""
}

// appReplacement returns how to replace a version of an app that does not start.
func appReplacement(a client.App) string {
	if a.Previous == 0 {
		return fmt.Sprintf("there is no earlier version: deploy one that starts, or remove the app with `outboard apps remove %s`", a.Name)
	}
	return fmt.Sprintf("`outboard apps rollback %s` deploys version %d again", a.Name, a.Previous)
}

// checkModels reports models that no node can load.
func checkModels(s *poolStatus) []statusProblem {
	var all []statusProblem
	for i := range s.Models {
		m := &s.Models[i]
		if m.State != client.ModelFailed {
			continue
		}
		all = append(all, statusProblem{
			Subject: "model " + m.Name,
			Text:    fmt.Sprintf("node %s cannot load version %d: %s", m.Node, m.Version, cmp.Or(oneLine(m.Reason), "no reason given")),
			Remedy:  fmt.Sprintf("see `outboard models show %s --why`; %s", m.Name, modelReplacement(m)),
		})
	}
	return all
}

// modelReplacement returns how to replace a version of a model that no node can load.
func modelReplacement(m *client.Model) string {
	if m.Previous == 0 {
		return fmt.Sprintf("there is no earlier version: push one that loads, or remove the model with `outboard models remove %s`", m.Name)
	}
	return fmt.Sprintf("`outboard models rollback %s` restores version %d", m.Name, m.Previous)
}

// unknownServices is the name under which a node counts calls of services that no program of the pool
// has served since it knows the pool, together.
const unknownServices = "other"

// failingShare is the share of failing calls at which a method is a problem.
const failingShare = 0.05

// checkCallErrors reports methods with a notable share of failing calls.
func checkCallErrors(s *poolStatus) []statusProblem {
	var all []statusProblem
	for _, c := range s.Calls {
		if c.Service == unknownServices {
			if c.Rate > 0 {
				all = append(all, statusProblem{
					Subject: "calls",
					Text:    perSecond(c.Rate) + " calls/s name services that no program of the pool serves",
					Remedy:  "their callers' errors name the service: start a program that serves it, or offer a gRPC server with `outboard endpoints add HOST:PORT SERVICE`",
				})
			}
			continue
		}
		if c.Errors > 0 && c.Errors >= failingShare*c.Rate {
			all = append(all, statusProblem{
				Subject: "service " + c.Service,
				Text:    fmt.Sprintf("%s of %s calls/s of %s fail", perSecond(c.Errors), perSecond(c.Rate), c.Method),
				Remedy:  fmt.Sprintf("see `outboard calls --service %s -f`, and `outboard policies` for those that refuse calls", c.Service),
			})
		}
	}
	return all
}

// checkUnservedCalls reports services that this node's programs call and no program serves.
func checkUnservedCalls(s *poolStatus) []statusProblem {
	var unserved []string
	for _, c := range s.Calls {
		if c.Service == unknownServices {
			continue
		}
		served := slices.ContainsFunc(s.Services, func(v client.Service) bool { return v.Name == c.Service && v.Endpoints > 0 })
		if !served && (c.Rate > 0 || c.InFlight > 0) {
			unserved = append(unserved, c.Service)
		}
	}
	slices.Sort(unserved)
	var all []statusProblem
	for _, service := range slices.Compact(unserved) {
		all = append(all, statusProblem{
			Subject: "service " + service, Text: "it is called, and no program of the pool serves it",
			Remedy: "start a program that serves it, or offer a gRPC server with `outboard endpoints add HOST:PORT " + service + "`",
		})
	}
	return all
}

// oneLine joins the lines of a text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
