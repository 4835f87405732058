package gateway_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

func nothing(context.Context, gateway.Call) (gateway.Answer, error) { return gateway.Answer{}, nil }

func TestOptions(t *testing.T) {
	for want, opts := range map[string]gateway.Options{
		"there is no Invoker":                 {},
		"a number of the options is negative": {Invoker: invoke(nothing), Conns: -1},
		"it has control characters":           {Invoker: invoke(nothing), Node: "har\nbour"},
	} {
		if _, err := gateway.New(opts); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", opts, err, want)
		}
	}
	g := newGateway(t, gateway.Options{Invoker: invoke(nothing)}, shop(gateway.Route{Path: "/", Target: to("f")}))
	if !g.Serves("shop") || g.Serves("bank") || g.Name() != "gateway" {
		t.Errorf("%s serves shop: %v, bank: %v", g.Name(), g.Serves("shop"), g.Serves("bank"))
	}
	for name, want := range map[string]bool{"v1": true, "v2": true, "api": true, "shop": false, "v11": false} {
		if gateway.Reserved(name) != want {
			t.Errorf("%s is reserved: %v", name, !want)
		}
	}
}

// A table refuses what SetApps refuses.
func TestNewTable(t *testing.T) {
	if _, err := gateway.NewTable([]gateway.App{shop(gateway.Route{Path: "/", Target: to("f")})}); err != nil {
		t.Error(err)
	}
	for name, apps := range map[string][]gateway.App{
		"a path without a slash": {shop(gateway.Route{Path: "cart", Target: to("f")})},
		"an app twice":           {shop(gateway.Route{Path: "/", Target: to("f")}), shop(gateway.Route{Path: "/", Target: to("f")})},
	} {
		if _, err := gateway.NewTable(apps); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// A call that the gateway did not make is in its app's log, and the output beyond the limit is
// counted instead of kept.
func TestLogOfOtherCalls(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(nothing)}, shop(gateway.Route{Path: "/", Target: to("f")}))
	g.Log(gateway.Record{App: "bank", Target: "f"})
	g.Log(gateway.Record{
		App: "shop", Target: "f", Begin: time.Unix(0, 0), Took: time.Millisecond, Err: outboard.Errorf(outboard.Busy, "", "no\x1broom"),
		Stdout: []byte(strings.Repeat("x", gateway.MaxOutput+7)), Stderr: []byte("one\r\ntwo\n"),
	})
	records := slices.Collect(g.Logs(gateway.Filter{App: "shop"}))
	if len(records) != 1 {
		t.Fatalf("the log has %d records", len(records))
	}
	lines := records[0].Lines()
	if len(lines) != 4 || lines[1].Text != "one" || lines[2].Text != "two" || lines[3].Kind != "busy" {
		t.Fatalf("the lines are %+v", lines)
	}
	text := lines[3].String()
	if !strings.Contains(text, "(7 bytes of output left out)") || strings.Contains(text, "\x1b") {
		t.Errorf("the last line is %q", text)
	}
	if json := string(lines[3].JSON()); !strings.Contains(json, `"function":"f"`) {
		t.Errorf("as JSON it is %s", json)
	}
}
