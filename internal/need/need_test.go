package need

import (
	"runtime"
	"testing"
)

// recorder is a testing.TB that records whether it was failed or skipped.
type recorder struct {
	testing.TB
	ended string
}

func (*recorder) Helper() {}

func (r *recorder) Fatalf(string, ...any) { r.ended = "failed"; runtime.Goexit() }

func (r *recorder) Skipf(string, ...any) { r.ended = "skipped"; runtime.Goexit() }

func TestThat(t *testing.T) {
	tests := map[string]struct {
		require string
		ok      bool
		want    string
	}{
		"there":             {"all", true, ""},
		"missing":           {"", false, "skipped"},
		"missing, required": {"gpu,moon", false, "failed"},
		"missing, all":      {"all", false, "failed"},
		"missing, others":   {"gpu", false, "skipped"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(Variable, tt.require)
			r := &recorder{}
			done := make(chan struct{})
			go func() {
				defer close(done)
				Require(r, "moon", tt.ok, "wait for night")
			}()
			<-done
			if r.ended != tt.want {
				t.Errorf("got %q, want %q", r.ended, tt.want)
			}
		})
	}
}
