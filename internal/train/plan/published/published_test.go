package published

import (
	"context"
	"math"
	"testing"

	"github.com/outboard-run/outboard/internal/train/plan"
)

// The parameters and operations of a model are those that its paper names.
func TestModelsHaveTheirPublishedSize(t *testing.T) {
	for _, m := range append(Megatron(), Alpa()...) {
		j := Selene().Job(m)
		if err := j.Check(); err != nil {
			t.Fatal(err)
		}
		var parameters, forward float64
		for _, l := range j.Layers {
			parameters += l.Parameters / 2
			forward += l.Forward
		}
		// Narayanan and others, section 5.1: 12lh²(1 + 13/12h + (V+s)/12lh) parameters, and a
		// forward pass of 24slh²(1 + s/6h + V/12lh) operations. The head here has an embedding of its own.
		l, h, s, v := float64(m.Layers), float64(m.Width), float64(m.Length), float64(vocabulary)
		if want := 12*l*h*h*(1+13/(12*h)+v/(12*l*h)) + v*h; math.Abs(parameters/want-1) > 0.01 {
			t.Errorf("%s has %.3g parameters, want %.3g", m.Name, parameters, want)
		}
		want := 24 * s * l * h * h * (1 + s/(6*h) + v/(12*l*h)) / (halfPeak * Selene().Peak)
		if forward < want || forward > 1.3*want {
			t.Errorf("%s takes %v s forward, its products alone %v", m.Name, forward, want)
		}
	}
}

// On a cluster with fast links within its nodes and slower ones between them, degrees that are chosen
// together are at least 1.2 times as fast as the best single kind of parallelism.
func TestJointPlansBeatSingleKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("a search of some seconds")
	}
	j := P3().Job(Alpa()[1])
	best, err := j.Best(context.Background(), plan.Objective{})
	if err != nil {
		t.Fatal(err)
	}
	least := math.Inf(1)
	for _, single := range []func() (plan.Plan, error){
		func() (plan.Plan, error) { return j.DataParallel(plan.Objective{}) },
		func() (plan.Plan, error) { return j.TensorParallel(plan.Objective{}) },
		func() (plan.Plan, error) { return j.Pipeline(context.Background(), plan.Objective{}) },
	} {
		if p, err := single(); err == nil {
			least = min(least, p.Time)
		}
	}
	if math.IsInf(least, 1) || least < 1.2*best.Time {
		t.Errorf("the best plan takes %v, the best single kind %v: %+v", best.Time, least, best.Choice)
	}
}
