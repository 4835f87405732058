package function

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outboard-run/outboard/internal/function/optimize"
)

// TestMutatedGuest rewrites a real module with some bytes changed, cut out or doubled:
// it is refused or rewritten, and grows by less than what checks can take.
func TestMutatedGuest(t *testing.T) {
	whole := goGuest(t, "pass")
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 20 {
		file := slices.Clone(whole)
		for range 1 + random.IntN(4) {
			at := random.IntN(len(file) - 1000)
			switch random.IntN(4) {
			case 0:
				file[at] ^= 1 << random.IntN(8)
			case 1:
				file[random.IntN(200)] = byte(random.Uint32())
			case 2:
				file = slices.Delete(file, at, at+random.IntN(1000))
			case 3:
				file = slices.Insert(file, at, file[at:at+random.IntN(1000)]...)
			}
		}
		r, err := optimize.Module(file, optimize.Options{})
		switch {
		case err != nil:
			refused++
		case len(r.Code) > len(file)+40*r.Checks+1000:
			t.Errorf("%d bytes became %d with %d checks", len(file), len(r.Code), r.Checks)
		}
	}
	t.Logf("%d of 20 were refused", refused)
}
