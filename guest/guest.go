// Package guest embeds the sources of the libraries for functions, which `outboard new` copies beside a new
// function, so that it builds without a network.
package guest

import "embed"

// Sources are go (the packages guest, web, nn, text and guesttest), c (outboard.h) and as
// (outboard.ts).
//
//go:embed go/*.go go/web/*.go go/nn/*.go go/text/*.go go/guesttest/*.go c/outboard.h as/outboard.ts
var Sources embed.FS
