// Package artifact keeps files by their content, and trades WebAssembly modules with
// OCI registries.
//
// # The store
//
// A [Store] is a folder in OCI's image layout (image-spec v1.1), so that other tools can
// read it: blobs/sha256/HEX for each file, index.json for what has a name. Several
// processes may use it at the same time: a blob is renamed into place when it is whole,
// and index.json is changed under a lock. What is read is compared with its digest,
// always; a blob that is not what it should be is taken away. What is not here is
// fetched from another node where a [Source] is given.
//
// Files without a name stay while somebody needs them: Collect removes the others, once
// they have not been asked for for a while.
//
// # Modules
//
// A module is packed as the "Wasm OCI Artifact" layout of CNCF's TAG Runtime, version 0:
// an image manifest whose config has the type application/vnd.wasm.config.v0+json and
// whose only layer has the type application/wasm. Who reads one refuses what the layout
// refuses, and components, which Outboard does not run. A [Remote] pushes modules to
// registries and pulls them from there.
package artifact
