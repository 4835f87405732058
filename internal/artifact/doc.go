// Package artifact stores files by the digests of their content, and pushes WebAssembly
// modules to OCI registries and pulls them.
//
// # The store
//
// A [Store] is a folder in OCI's image layout (image-spec v1.1), so that other tools can
// read it: blobs/sha256/HEX for each file, index.json for the names. Several
// processes may use it at the same time: a complete blob is renamed into place,
// and index.json is changed under a lock. Every read verifies the digest; a blob with
// another digest is deleted. A missing file is fetched from another node if the store has a
// [Source].
//
// Collect deletes files that have no name, that are not needed by an app, and that have not
// been used recently.
//
// # Modules
//
// A module is packed as the "Wasm OCI Artifact" layout of CNCF's TAG Runtime, version 0:
// an image manifest whose config has the type application/vnd.wasm.config.v0+json and
// whose only layer has the type application/wasm. Readers reject manifests that violate the
// layout, and components, which Outboard does not run. A [Remote] pushes modules to
// registries and pulls them.
package artifact
