// Package app turns the apps that are deployed in the pool into versions that are ready to
// be called on this node.
//
// Deployments reconciles the apps that a node serves with the pool's registry of apps: it fetches
// the files of a version, has its functions and workflows built, publishes its routes, and retires
// the versions before it. Each app becomes ready by itself; a version that can't be built is
// reported by its Progress and built again later, while the version before it continues to serve.
//
// The package knows no plane. It builds functions and workflows through Planes, publishes
// routes through Router and reads files through Files, which the composition root joins to
// the planes. All methods may be called by several goroutines.
package app
