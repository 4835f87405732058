package balance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

var errDown = status.Error(codes.Unavailable, "down")

// fail makes calls until the endpoint has failed n times.
func fail(t failer, p Picker, id string, n int, now time.Time) {
	for n > 0 {
		picked, err := p.Pick(head, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		if picked.Endpoint().ID == id {
			picked.Done(Outcome{Err: errDown}, now)
			n--
		} else {
			picked.Done(Outcome{}, now)
		}
	}
}

func ejected(p Picker, now time.Time) []string {
	var got []string
	for _, s := range p.Status(now) {
		if s.Ejected {
			got = append(got, s.ID)
		}
	}
	return got
}

func TestConsecutiveFailuresEject(t *testing.T) {
	p := pickerOf(t, Config{Ejection: Ejection{Consecutive: 3}}, named(1, 1, 1, 1)...)
	fail(t, p, "e01", 2, start)
	for range 4 {
		pick(t, p, start) // one of them is e01's: the count begins anew
	}
	fail(t, p, "e01", 2, start)
	if got := ejected(p, start); got != nil {
		t.Fatalf("ejected too early: %v", got)
	}
	fail(t, p, "e01", 1, start)
	if diff := cmp.Diff(ejected(p, start), []string{"e01"}); diff != "" {
		t.Fatalf("(-got +want):\n%s", diff)
	}
	if got := counts(t, p, start, 300); got["e01"] != 0 || got["e00"] != 100 {
		t.Errorf("calls while it is out: %v", got)
	}
	if got := counts(t, p, start.Add(30*time.Second), 400); got["e01"] != 100 {
		t.Errorf("calls when it is back: %v", got)
	}
}

func TestEjectionsGrow(t *testing.T) {
	p := pickerOf(t, Config{Ejection: Ejection{Consecutive: 1, Base: 30 * time.Second, Longest: 100 * time.Second, Interval: time.Hour}}, named(1, 1)...)
	now := start
	for _, want := range []time.Duration{30 * time.Second, 60 * time.Second, 90 * time.Second, 100 * time.Second, 100 * time.Second} {
		fail(t, p, "e01", 1, now)
		if ejected(p, now.Add(want-1)) == nil || ejected(p, now.Add(want)) != nil {
			t.Errorf("not ejected for %v", want)
		}
		now = now.Add(want)
	}
	// Intervals without are forgiven, one by one.
	for range 4 {
		now = now.Add(time.Hour)
		pick(t, p, now)
	}
	fail(t, p, "e01", 1, now)
	if ejected(p, now.Add(60*time.Second-1)) == nil || ejected(p, now.Add(60*time.Second)) != nil {
		t.Error("four intervals forgave not four of five")
	}
}

func TestSuccessRateEjects(t *testing.T) {
	p := pickerOf(t, Config{Ejection: Ejection{SuccessRate: 1900}}, named(slices.Repeat([]int{1}, 10)...)...)
	calls := map[string]int{}
	for range 2000 {
		picked, err := p.Pick(head, nil, start)
		if err != nil {
			t.Fatal(err)
		}
		id := picked.Endpoint().ID
		calls[id]++
		var o Outcome
		if n := calls[id]; n%20 == 0 || id == "e03" && n%4 == 0 {
			o.Err = errDown
		}
		picked.Done(o, start)
	}
	if got := ejected(p, start); got != nil {
		t.Errorf("ejected before the interval's end: %v", got)
	}
	pick(t, p, start.Add(10*time.Second))
	if diff := cmp.Diff(ejected(p, start.Add(10*time.Second)), []string{"e03"}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestBlame(t *testing.T) {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		bad, counts := classify(status.Error(code, ""))
		wantBad := slices.Contains([]codes.Code{codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss}, code)
		if bad != wantBad || counts == (code == codes.Canceled) {
			t.Errorf("%v: bad %v, counts %v", code, bad, counts)
		}
	}
	if bad, _ := classify(context.DeadlineExceeded); !bad {
		t.Error("an error without a status is not the endpoint's")
	}
}

// However calls fail and endpoints come and go, no more are out than allowed.
func TestEjectionLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 100).Draw(t, "limit")
		p, err := New(Config{Random: seeded(1), Ejection: Ejection{Consecutive: 1, SuccessRate: 100, Requests: 1, Hosts: 2, MaxPercent: limit, Interval: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		size, now := rapid.IntRange(1, 10).Draw(t, "size"), start
		p.Update(named(slices.Repeat([]int{1}, size)...), now)
		t.Repeat(map[string]func(*rapid.T){
			"call": func(t *rapid.T) {
				picked, err := p.Pick(head, nil, now)
				if err != nil {
					t.Fatal(err)
				}
				if rapid.Bool().Draw(t, "bad") {
					picked.Done(Outcome{Err: errDown}, now)
				} else {
					picked.Done(Outcome{}, now)
				}
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
			},
			"resize": func(t *rapid.T) {
				size = rapid.IntRange(1, 10).Draw(t, "size")
				p.Update(named(slices.Repeat([]int{1}, size)...), now)
			},
			"": func(t *rapid.T) {
				if out := len(ejected(p, now)); out*100 > limit*size {
					t.Fatalf("%d of %d are out, with a limit of %d%%", out, size, limit)
				}
			},
		})
	})
}

func TestEverybodyOut(t *testing.T) {
	p := pickerOf(t, Config{Ejection: Ejection{Consecutive: 1, MaxPercent: 100}}, named(1, 1)...)
	fail(t, p, "e00", 1, start)
	fail(t, p, "e01", 1, start)
	if got := fmt.Sprint(ejected(p, start)); got != "[e00 e01]" {
		t.Fatalf("ejected: %v", got)
	}
	if got := pick(t, p, start, "e00"); got != "e01" {
		t.Errorf("picked %s, which is excluded", got)
	}
}
