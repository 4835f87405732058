package cli

import "github.com/outboard-run/outboard/internal/quota"

// limitsFlag is the value of --tenant-limits. It implements pflag.Value.
type limitsFlag struct {
	limits quota.Limits
	text   string // as it was written: sizes are rounded when they are printed
}

// Set replaces the limits. An empty text restores the defaults.
func (f *limitsFlag) Set(text string) (err error) {
	*f = limitsFlag{}
	if text == "" {
		return nil
	}
	f.limits, err = quota.Parse(text)
	f.text = text
	return err
}

func (f *limitsFlag) String() string { return f.text }

// Type returns the name of the value in help texts.
func (f *limitsFlag) Type() string { return "limits" }
