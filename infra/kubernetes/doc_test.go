// Package kubernetes checks the manifests of this folder against the worker's own parser.
// The module in check renders and decodes them and checks their rules: make integration
// runs it.
package kubernetes
