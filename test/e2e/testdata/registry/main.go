// Program registry is an OCI registry that others wrote: CNCF Distribution, with files as
// its storage and htpasswd for its users. It is a module of its own, so that ours does not
// need what it needs.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
}
