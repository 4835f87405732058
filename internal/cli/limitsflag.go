package cli

import "github.com/outboard-run/outboard/internal/quota"

// limitsFlag is the value of --tenant-limits. It implements pflag.Value.
type limitsFlag struct{ limits quota.Limits }

// Set replaces the limits.
func (f *limitsFlag) Set(text string) (err error) {
	f.limits, err = quota.Parse(text)
	return err
}

func (f *limitsFlag) String() string { return f.limits.String() }

// Type returns the name of the value in help texts.
func (f *limitsFlag) Type() string { return "limits" }
