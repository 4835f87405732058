package placement_test

import (
	"fmt"
	"time"

	. "github.com/outboard-run/outboard/internal/workflow/placement"
)

// A step with two inputs is launched so that it never waits, and ends as early as if it
// had been launched with its producers.
func ExampleLaunch() {
	steps := []Step{
		{Name: "short", Work: 2 * time.Second},
		{Name: "long", Work: 10 * time.Second},
		{Name: "join", Inputs: []Input{{From: 0, Takes: 5 * time.Second}, {From: 1, Takes: time.Second}}, Work: time.Second, Memory: 1e9},
	}
	for _, p := range []Policy{Lazy, Eager, Nimble} {
		launch, err := Launch(p, steps)
		if err != nil {
			fmt.Println(err)
			return
		}
		out, err := Simulate(steps, launch)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v: join is launched at %v, all is done at %v, %.0f GB-seconds\n", p, launch[2], out.Completion, out.GBSeconds)
	}
	// Output:
	// lazy: join is launched at 10s, all is done at 17s, 7 GB-seconds
	// eager: join is launched at 0s, all is done at 12s, 12 GB-seconds
	// nimble: join is launched at 5s, all is done at 12s, 7 GB-seconds
}

// Four long steps are spread over two nodes, although their values have to be copied.
func ExampleDecide() {
	d, err := Decide(Problem{Steps: fan(4, ms(100), mib), Nodes: nodes("harbour", "lighthouse"), Link: link})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(d)
	// Output:
	// takes 131ms on 2 nodes, 4MiB cross between them; on one node it would take 220ms
	// split on harbour: 0s to 10ms, waits for nothing; on lighthouse the whole would take 12ms longer
	// work-0 on lighthouse: 21ms to 121ms, waits for inputs; on harbour the whole would take 100ms longer
	// work-1 on lighthouse: 21ms to 121ms, waits for inputs; on harbour the whole would take 100ms longer
	// work-2 on harbour: 10ms to 110ms, waits for inputs; on lighthouse the whole would take 100ms longer
	// work-3 on harbour: 10ms to 110ms, waits for inputs; on lighthouse the whole would take 100ms longer
	// join on lighthouse: 121ms to 131ms, waits for inputs; on harbour the whole would take 11ms longer
}
